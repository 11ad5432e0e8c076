"""The fifth rung: a run of the session has many steps of fused.py, one after another in the graph."""

import network
import tensorflow as tf

from tfk8s import parallel

EVERY = network.options.every


def batches(worker):
    """The batches of a run as one element, whose first axis is the step."""
    return network.batches(worker).batch(EVERY).prefetch(1)


iterators = parallel.inputs(batches, network.WORKERS)
elements = parallel.map_tasks(lambda iterator: iterator.get_next(), iterators, network.WORKERS)
copies = network.copies()
count = len(copies[0])


def train(work):
    values, (*means, _) = work
    return [value - network.RATE * mean for value, mean in zip(values, means, strict=True)]


def step(number, values):
    def gradients_and_cost(work):
        values, element = work
        cost = network.cost_of(values, element[number])
        return [*tf.gradients(cost, values), cost]

    values = [values[:count], values[count:]]  # of each worker
    results = parallel.map_tasks(gradients_and_cost, list(zip(values, elements, strict=True)), network.WORKERS)
    means = parallel.tree_mean(results, network.WORKERS, network.SIZES)
    first, second = parallel.map_tasks(train, list(zip(values, means, strict=True)), network.WORKERS)
    return first + second, means[0][-1]


variables = copies[0] + copies[1]
with tf.device(network.WORKERS[0]):
    values, costs = parallel.repeat(step, variables, EVERY, unroll=True)
train_all = [variable.assign(value) for variable, value in zip(variables, values, strict=True)]
network.learn(network.TARGET, costs, tf.group(train_all))
