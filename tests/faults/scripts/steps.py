"""A session script for TensorFlow 1: two steps over a ps and a worker.

    steps.py before|during|after [ROUNDS]

It says where it is, and goes on there when it gets a line; within a step, it just goes on for long.
"""

import os
import sys

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
pause = sys.argv[1]
LONG, SHORT = 2_000_000_000, 10


def here(moment):
    if moment == pause:
        print(moment, flush=True)
        sys.stdin.readline()


with tf.device("/job:ps/task:0"):
    total = tf.get_variable("total", initializer=0.0)
with tf.device("/job:worker/task:1"):
    rounds = tf.placeholder(tf.int32, [])
    busy = tf.while_loop(lambda i, x: i < rounds, lambda i, x: (i + 1, tf.sin(x)), (0, 1.0))[1]
    step = tf.assign_add(total, busy)

with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    session.run(tf.global_variables_initializer())
    here("before")
    if pause == "during":
        print("during", flush=True)
    session.run(step, {rounds: LONG if pause == "during" else SHORT})
    here("after")
    session.run(step, {rounds: SHORT})
print("done", flush=True)
