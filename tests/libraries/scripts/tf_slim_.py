"""A regression as README of tf-slim has it; `master` leads its session to the cluster."""

import os
import tempfile

import tensorflow.compat.v1 as tf
import tf_slim as slim
from where import table

tf.disable_v2_behavior()
target = os.environ.get("TFK8S_TARGET", "")
x = table(64, 4)
with tf.Graph().as_default():
    tf.set_random_seed(1)
    with tf.device("/job:worker/task:1" if target else None):
        inputs = tf.constant(x)
        hidden = slim.fully_connected(inputs, 8, weights_initializer=tf.ones_initializer(), scope="hidden")
        outputs = slim.fully_connected(hidden, 1, activation_fn=None, weights_initializer=tf.ones_initializer())
        loss = tf.losses.mean_squared_error(x.sum(axis=1, keepdims=True), outputs)
        train = slim.learning.create_train_op(loss, tf.train.GradientDescentOptimizer(0.001))
    final = slim.learning.train(
        train, tempfile.mkdtemp(), master=target, number_of_steps=20, log_every_n_steps=100, save_summaries_secs=0
    )
print(f"{final:.6f}")
