"""A script that feeds 2.1 GiB, more than the 2 GiB that a message can hold."""

import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
much = np.zeros(2_254_857_831, np.uint8)
with tf.device("/job:worker/task:1"):
    fed = tf.placeholder(tf.uint8, [None])
    size = tf.size(fed)
with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    print("a step", flush=True)
    print(session.run(size, {fed: much}))
