"""A session script for TensorFlow 1 that has many sessions at once, each with five steps over a ps and a worker.

many_sessions.py SESSIONS
"""

import os
import sys
import threading

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
with tf.device("/job:ps/task:0"):
    one = tf.constant(1.0) + tf.constant(2.0)
with tf.device("/job:worker/task:1"):
    three = one * 1.0
done = []


def steps():
    with tf.Session(os.environ["TFK8S_TARGET"], graph=three.graph) as session:
        for _ in range(5):
            assert session.run(three) == 3.0
            done.append(1)


threads = [threading.Thread(target=steps) for _ in range(int(sys.argv[1]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(done), "steps")
