"""The same graph, spread over two servers: tf.device names the task of an operation."""

import tensorflow as tf

# A placeholder, because the master computes constant expressions itself: task 1 would have no work.
x = tf.placeholder(tf.int32, [])

with tf.device("/job:local/task:1"):
    y2 = x - 66

with tf.device("/job:local/task:0"):
    y1 = x + 300
    y = y1 + y2  # y2 comes from task 1: TensorFlow transfers it

with tf.Session("grpc://localhost:2222") as session:
    print(session.run(y, {x: 2}))
