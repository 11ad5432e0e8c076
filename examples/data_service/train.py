"""Fits a line to examples that the workers of tf.data's service compute."""

import os

import tensorflow as tf

EXAMPLES, BATCH, EPOCHS = 4096, 64, 2


def example(number):
    """Return one point of the line y = 3x + 2. A data worker computes it; imagine a decoded image here."""
    x = tf.random.stateless_uniform([], [tf.cast(number, tf.int32), 7], -1.0, 1.0)
    return x, 3 * x + 2


dataset = tf.data.Dataset.range(EXAMPLES).map(example, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH)
# Each batch is computed once, by one of the data workers.
service = tf.data.experimental.service.distribute("distributed_epoch", os.environ["TFK8S_DATA_SERVICE"])
batches = dataset.apply(service)

slope, offset = tf.Variable(0.0), tf.Variable(0.0)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((slope * x + offset - y) ** 2)
    for variable, gradient in zip((slope, offset), tape.gradient(loss, (slope, offset)), strict=True):
        variable.assign_sub(0.2 * gradient)


for epoch in range(EPOCHS):
    count = 0
    for x, y in batches:
        step(x, y)
        count += len(x)
    print(f"epoch {epoch}: {count} examples", flush=True)
print(f"y = {slope.numpy():.2f} x + {offset.numpy():.2f}")
