"""The third rung: the workers make their own batches, so that no batch travels. All else is as in naive.py."""

import network
import tensorflow as tf

from tfk8s import parallel

iterators = parallel.inputs(network.batches, network.WORKERS)


def model(worker):
    variables = network.parameters()
    cost = network.cost_of(variables, iterators[worker].get_next())
    return cost, tf.gradients(cost, variables)


costs, gradients = zip(*parallel.replicate(model, network.WORKERS, variables_on=network.PS), strict=True)
with tf.device(network.PS):
    # A mean for each variable, of the gradients of all workers.
    means = [parallel.reduce_mean(parts, network.SIZES) for parts in zip(*gradients, strict=True)]
    optimizer = tf.train.GradientDescentOptimizer(network.RATE)
    train = optimizer.apply_gradients(zip(means, network.parameters(), strict=True))
    cost = parallel.reduce_mean(costs, network.SIZES)

network.learn(network.TARGET, cost, train)
