"""The fourth rung: a step sends one tensor with all variables, and one with all gradients comes back.

The first worker keeps the variables, so that only the second one sends and receives. It needs no ps.
"""

import network
import tensorflow as tf

from tfk8s import parallel

iterators = parallel.inputs(network.batches, network.WORKERS)


def gradients_and_cost(work):
    copies, iterator = work
    cost = network.cost_of(copies, iterator.get_next())
    return [*tf.gradients(cost, copies), cost]  # the cost travels with the gradients


with tf.device(network.WORKERS[0]):
    variables = network.parameters()
work = list(zip(parallel.broadcast(variables, network.WORKERS), iterators, strict=True))
results = parallel.map_tasks(gradients_and_cost, work, network.WORKERS)
with tf.device(network.WORKERS[0]):
    *means, cost = parallel.average_gradients(results, network.SIZES)
    optimizer = tf.train.GradientDescentOptimizer(network.RATE)
    train = optimizer.apply_gradients(zip(means, variables, strict=True))

network.learn(network.TARGET, cost, train)
