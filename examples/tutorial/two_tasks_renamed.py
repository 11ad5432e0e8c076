"""The script two_tasks.py for renamed.yaml, whose job is called worker. Only the two device strings differ."""

import tensorflow as tf

# A placeholder, because the master computes constant expressions itself: task 1 would have no work.
x = tf.placeholder(tf.int32, [])

with tf.device("/job:worker/task:1"):
    y2 = x - 66

with tf.device("/job:worker/task:0"):
    y1 = x + 300
    y = y1 + y2  # y2 comes from task 1: TensorFlow transfers it

with tf.Session("grpc://localhost:2222") as session:
    print(session.run(y, {x: 2}))
