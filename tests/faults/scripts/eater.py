"""A script whose step needs more memory than its worker may use."""

import os

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
with tf.device("/job:worker/task:1"):
    much = tf.random.uniform([600_000_000])
    total = tf.reduce_sum(much) + tf.reduce_max(much)
with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    print("a step", flush=True)
    print(session.run(total))
