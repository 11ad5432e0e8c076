"""For comparison, TensorFlow 2's MultiWorkerMirroredStrategy: this program runs in each worker.

Each worker has all variables, and all gradients travel between the workers in each step.
"""

import network
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any other operation of TensorFlow
worker = strategy.cluster_resolver.task_id
with strategy.scope():
    variables = [tf.Variable(value) for value in network.initial_values()]


def on_worker(x):
    with tf.GradientTape() as tape:
        cost = network.cost_of(variables, x)
    gradients = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(cost, variables))
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign_sub(network.RATE * gradient)
    return cost


@tf.function
def step(x):
    return strategy.reduce("MEAN", strategy.run(on_worker, args=(x,)), axis=None)


step(next(iter(network.batches(worker))))  # TensorFlow prepares the function in its first run
for variable, value in zip(variables, network.initial_values(), strict=True):
    variable.assign(value)

recorder = network.Recorder()
for x in network.batches(worker).take(network.options.steps):
    recorder.add(step(x))
if worker == 0:
    recorder.finish()
