"""The sixth rung, another algorithm: each worker makes many steps of its own. Then the first averages all variables."""

import network
import tensorflow as tf

from tfk8s import parallel

iterators = parallel.inputs(network.batches, network.WORKERS)


def step(worker, _, values):
    cost = network.cost_of(values, iterators[worker].get_next())
    gradients = tf.gradients(cost, values)
    return [value - network.RATE * gradient for value, gradient in zip(values, gradients, strict=True)], cost


with tf.device(network.WORKERS[0]):
    variables = network.parameters()
    values, costs = parallel.local_sgd(step, variables, network.WORKERS, network.options.every, network.SIZES)
    train = tf.group(*[variable.assign(value) for variable, value in zip(variables, values, strict=True)])

network.learn(network.TARGET, costs, train)
