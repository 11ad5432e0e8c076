"""The same graph, spread over two servers: tf.device says which task runs an operation."""

import tensorflow as tf

# Fed, not tf.constant(2): the master computes what is constant by itself and would leave task 1 no work.
x = tf.placeholder(tf.int32, [])

with tf.device("/job:local/task:1"):
    y2 = x - 66

with tf.device("/job:local/task:0"):
    y1 = x + 300
    y = y1 + y2  # y2 comes from task 1: TensorFlow moves it, the script need not

with tf.Session("grpc://localhost:2222") as session:
    print(session.run(y, {x: 2}))
