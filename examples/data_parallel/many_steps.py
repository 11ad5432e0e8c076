"""The fifth rung: a run of the session has many steps of fused.py. The loop is in the graph."""

import network
import tensorflow as tf

from tfk8s import parallel

iterators = parallel.inputs(network.batches, network.WORKERS)


def gradients_and_cost(work):
    copies, iterator = work
    cost = network.cost_of(copies, iterator.get_next())
    return [*tf.gradients(cost, copies), cost]  # the cost travels with the gradients


def step(_, values):
    work = list(zip(parallel.broadcast(values, network.WORKERS), iterators, strict=True))
    results = parallel.map_tasks(gradients_and_cost, work, network.WORKERS)
    *means, cost = parallel.average_gradients(results, network.SIZES)
    return [value - network.RATE * mean for value, mean in zip(values, means, strict=True)], cost


with tf.device(network.WORKERS[0]):
    variables = network.parameters()
    values, costs = parallel.repeat(step, variables, network.options.every)
    train = tf.group(*[variable.assign(value) for variable, value in zip(variables, values, strict=True)])

network.learn(network.TARGET, costs, train)
