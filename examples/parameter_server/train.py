"""Fits a line to points with ParameterServerStrategy: the workers compute steps on their own, the ps keep the weights.

After https://www.tensorflow.org/tutorials/distribute/parameter_server_training, custom training loop.
"""

import tensorflow as tf

STEPS = 200
TRUTH = tf.constant([[1.0], [-2.0], [3.0], [-4.0]])

strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver(),
    variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(num_shards=2),
)
with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))
    steps = tf.Variable(0)


def points(_):
    """Return an endless dataset; each worker has its own."""

    def batch(number):
        x = tf.random.stateless_normal([64, 4], seed=[number, 0])
        return x, x @ TRUTH

    return tf.data.Dataset.range(1_000_000).map(batch).prefetch(2)


@tf.function
def dataset_of_a_worker():
    return strategy.distribute_datasets_from_function(points)


@tf.function
def step(iterator):
    def on_worker(x, y):
        with tf.GradientTape() as tape:
            parts = [tf.convert_to_tensor(part) for part in weights.variables]
            tape.watch(parts)
            loss = tf.reduce_mean((x @ tf.concat(parts, axis=0) - y) ** 2)
        for part, gradient in zip(weights.variables, tape.gradient(loss, parts), strict=True):
            part.assign_sub(0.1 * gradient)
        steps.assign_add(1)
        return loss

    return strategy.run(on_worker, args=next(iterator))


coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
iterator = iter(coordinator.create_per_worker_dataset(dataset_of_a_worker))
losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(STEPS)]
coordinator.join()
print(f"{steps.numpy()} steps, loss {losses[-1].fetch():.4f}")
for part in weights.variables:
    task = tf.DeviceSpec.from_string(part.device)
    print(f"{task.job}/{task.task} has the weights", *(f"{weight:.2f}" for weight in part.numpy().ravel()))
