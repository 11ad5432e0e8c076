"""A network of Sonnet that runs eagerly on a worker: Sonnet refuses strategies that it does not know."""

import os

import sonnet
import tensorflow as tf
from where import table

if "TFK8S_TARGET" in os.environ:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.config.experimental_connect_to_cluster(resolver, job_name="chief", task_index=0)
x = table(64, 4)
with tf.device("/job:worker/task:0" if "TFK8S_TARGET" in os.environ else None):
    model = sonnet.nets.MLP([8, 1], w_init=sonnet.initializers.Constant(0.1))
    optimizer = sonnet.optimizers.SGD(0.01)
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - x.sum(axis=1, keepdims=True)) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        print(f"{loss:.6f}")
