"""A program without sessions: it reads a variable on a task, again and again."""

import json
import os

import tensorflow as tf

cluster = tf.train.ClusterSpec(json.loads(os.environ["TFK8S_CLUSTER"]))
tf.config.experimental_connect_to_cluster(cluster, job_name="client")
with tf.device("/job:ps/task:0"):
    variable = tf.Variable(1.0)
print("reads", flush=True)
while True:
    variable.read_value()
