"""A script with more than the 2 GiB that a message can hold: in one constant, in several, or in its result."""

import os
import sys

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
MUCH = 2_254_857_831
where = sys.argv[1]
if where == "constant":
    print("a step", flush=True)
    tf.constant(np.zeros(MUCH, np.uint8))
elif where == "constants":
    fetched = tf.add_n([tf.constant(np.full(MUCH // 3, number, np.uint8)) for number in range(3)])
else:
    with tf.device("/job:worker/task:1"):
        fetched = tf.fill([MUCH], np.uint8(1))
with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    print("a step", flush=True)
    session.run(fetched)
