"""The second rung, as most begin: the script feeds each worker its half of every batch.

Each step sends four small tensors to each worker and four back, and every batch from the script to the workers.
"""

import network
import numpy as np
import tensorflow as tf

from tfk8s import parallel

x = tf.placeholder(tf.float32, [sum(network.SIZES), 1])
parts = parallel.split(x, network.WORKERS, network.SIZES)


def model(worker):
    variables = network.parameters()
    cost = network.cost_of(variables, parts[worker])
    return cost, tf.gradients(cost, variables)


costs, gradients = zip(*parallel.replicate(model, network.WORKERS, variables_on=network.PS), strict=True)
with tf.device(network.PS):
    # A mean for each variable, of the gradients of all workers.
    means = [parallel.reduce_mean(parts, network.SIZES) for parts in zip(*gradients, strict=True)]
    optimizer = tf.train.GradientDescentOptimizer(network.RATE)
    train = optimizer.apply_gradients(zip(means, network.parameters(), strict=True))
    cost = parallel.reduce_mean(costs, network.SIZES)


def feeds(step):
    numbers = np.arange(sum(network.SIZES), dtype=np.int32) + np.int32(step * sum(network.SIZES))
    return {x: network.examples(numbers)}


network.learn(network.TARGET, cost, train, feeds)
