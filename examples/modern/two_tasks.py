"""The tutorial's graph on two tasks, in TensorFlow 2, where graphs and sessions are explicit.

tfk8s.session() knows the address of the cluster. If a task does not respond, it names the task, while TensorFlow would
wait without a message.
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
