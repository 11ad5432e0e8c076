"""The smallest graph, without any cluster: TensorFlow 1 describes a computation, then a session runs it."""

import tensorflow as tf

x = tf.placeholder(tf.int32, [])
y1 = x + 300
y2 = x - 66
y = y1 + y2

with tf.Session() as session:
    print(session.run(y, {x: 2}))
