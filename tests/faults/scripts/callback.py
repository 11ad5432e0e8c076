"""A script that pins a Python function to a worker, which can not run it."""

import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
with tf.device("/job:worker/task:1"):
    doubled = tf.py_func(lambda x: np.float32(2 * x), [1.0], tf.float32)
with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    print("a step", flush=True)
    print(session.run(doubled))
