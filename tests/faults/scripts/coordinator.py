"""A program for ParameterServerStrategy: its workers count the functions that it schedules, on the ps."""

import tensorflow as tf

FUNCTIONS = 240

strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    count = tf.Variable(0)


@tf.function
def count_one():
    busy = tf.while_loop(lambda i, _: i < 2_000, lambda i, x: (i + 1, tf.sin(x)), (0, 1.0))[1]
    return count.assign_add(1 + tf.cast(busy * 0.0, tf.int32))


for number in range(FUNCTIONS):
    result = coordinator.schedule(count_one)
    if number == FUNCTIONS // 4:
        result.fetch()
        print("schedules", flush=True)
coordinator.join()
print(f"counted {count.numpy()} of {FUNCTIONS}", flush=True)
