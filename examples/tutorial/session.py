"""The same graph, run by a TensorFlow server: only the session's address differs from single.py."""

import tensorflow as tf

x = tf.placeholder(tf.int32, [])
y1 = x + 300
y2 = x - 66
y = y1 + y2

# The server at this address is the master. It runs every operation that is not pinned to another task.
with tf.Session("grpc://localhost:2222") as session:
    print(session.run(y, {x: 2}))
