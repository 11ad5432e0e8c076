"""The tutorial's graph on two tasks, in TensorFlow 2, where graphs and sessions have to be asked for.

tfk8s.session() knows the cluster's address, and names the tasks that do not answer, where TensorFlow
would wait for them without a word.
"""

import tensorflow as tf

import tfk8s

graph = tf.Graph()
with graph.as_default():
    x = tf.compat.v1.placeholder(tf.int32, [])

    with tf.device("/job:local/task:1"):
        y2 = x - 66

    with tf.device("/job:local/task:0"):
        y1 = x + 300
        y = y1 + y2

with tfk8s.session(graph=graph) as session:
    print(session.run(y, {x: 2}))
