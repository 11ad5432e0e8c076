"""A sparse variational Gaussian process of GPflow, in a loop with `strategy.run`."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import gpflow
import tensorflow as tf
from where import strategy, table

x = table(64, 1)
y = tf.sin(x).numpy()
chosen = strategy()
with chosen.scope():
    model = gpflow.models.SVGP(
        gpflow.kernels.RBF(), gpflow.likelihoods.Gaussian(), x[:8].astype("float64"), num_data=64
    )
    optimizer = tf.keras.optimizers.SGD(0.001)
rows = (x.astype("float64"), y.astype("float64"))
data = iter(chosen.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(rows).batch(32).repeat()))


def replica(batch):
    with tf.GradientTape() as tape:
        loss = -model.elbo(batch) / chosen.num_replicas_in_sync
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
    return loss


@tf.function
def step(batch):
    return chosen.reduce("SUM", chosen.run(replica, args=(batch,)), axis=None)


for _ in range(5):
    print(f"{step(next(data)):.6f}")
