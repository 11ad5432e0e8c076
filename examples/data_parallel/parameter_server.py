"""For comparison, TensorFlow 2's ParameterServerStrategy: each worker changes the variables when it is ready.

No worker waits for another: a worker that is ready takes the next half of a batch. So a step here is two changes.
"""

import network
import tensorflow as tf

RATE = network.RATE / len(network.WORKERS)  # two changes a step

strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
with strategy.scope():
    variables = [tf.Variable(value) for value in network.initial_values()]


@tf.function
def step(half):
    def on_worker(half):
        x = network.examples(tf.range(half * network.options.batch, (half + 1) * network.options.batch))
        with tf.GradientTape() as tape:
            parameters = [tf.convert_to_tensor(variable) for variable in variables]
            tape.watch(parameters)
            cost = network.cost_of(parameters, x)
        for variable, gradient in zip(variables, tape.gradient(cost, parameters), strict=True):
            variable.assign_sub(RATE * gradient)
        return cost

    return strategy.run(on_worker, args=(half,))


coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
for _ in network.WORKERS:
    coordinator.schedule(step, args=(tf.constant(0),))  # TensorFlow prepares the function in its first run
coordinator.join()
for variable, value in zip(variables, network.initial_values(), strict=True):
    variable.assign(value)

recorder = network.Recorder()
halves = range(network.options.steps * len(network.WORKERS))
costs = [coordinator.schedule(step, args=(tf.constant(half),)) for half in halves]
for pair in zip(*[iter(costs)] * len(network.WORKERS), strict=True):
    recorder.add(sum(cost.fetch() for cost in pair) / len(pair))
recorder.finish()
