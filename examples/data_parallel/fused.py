"""The fourth rung: each worker keeps the variables, and sends one tensor with all gradients to the other one.

Both add the same gradients to the same variables, so that no variable travels. The workers need no ps.
"""

import network
import tensorflow as tf

from tfk8s import parallel

iterators = parallel.inputs(network.batches, network.WORKERS)
copies = network.copies()


def gradients_and_cost(work):
    variables, iterator = work
    cost = network.cost_of(variables, iterator.get_next())
    return [*tf.gradients(cost, variables), cost]  # the cost travels with the gradients


def train(work):
    variables, (*means, _) = work
    return tf.train.GradientDescentOptimizer(network.RATE).apply_gradients(zip(means, variables, strict=True))


results = parallel.map_tasks(gradients_and_cost, list(zip(copies, iterators, strict=True)), network.WORKERS)
means = parallel.tree_mean(results, network.WORKERS, network.SIZES)
steps = parallel.map_tasks(train, list(zip(copies, means, strict=True)), network.WORKERS)
network.learn(network.TARGET, means[0][-1], tf.group(steps))
