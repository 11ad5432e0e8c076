"""A program of MultiWorkerMirroredStrategy, which runs in every task and goes on from its last checkpoint.

Each step trains on the next global batch, of which each worker takes its part. So any number of workers gives the same
losses. Only the chief writes checkpoints; all workers read them when they start.
"""

import argparse

import tensorflow as tf

BATCH, FEATURES = 64, 8


def batch(step: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the global batch of a step: always the same values of the same function."""
    values = tf.random.stateless_normal([BATCH, FEATURES], seed=[step, 1])
    return values, tf.sin(tf.reduce_sum(values, axis=1, keepdims=True))


class Model(tf.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = tf.Variable(tf.random.stateless_normal([FEATURES, 32], seed=[0, 2]) / 3)
        self.out = tf.Variable(tf.random.stateless_normal([32, 1], seed=[0, 3]) / 6)

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        return tf.tanh(values @ self.hidden) @ self.out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoints", required=True, help="a folder that all workers share")
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any other operation of TensorFlow
    resolver = strategy.cluster_resolver
    workers = strategy.num_replicas_in_sync
    is_chief = not resolver.task_id
    with strategy.scope():
        model = Model()
        step = tf.Variable(0, trainable=False, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, step=step)
    manager = tf.train.CheckpointManager(checkpoint, options.checkpoints, max_to_keep=2)
    restored = manager.restore_or_initialize()
    done = int(step.numpy())
    print(f"{workers} workers, {f'from step {done}' if restored else 'from the beginning'}", flush=True)

    def replica(values: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(values) - labels) ** 2)
        variables = model.trainable_variables
        gradients = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, variables))
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    @tf.function
    def train(values: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(replica, args=(values, labels)), axis=None)

    while done < options.steps:
        values, labels = batch(done)
        part = slice(resolver.task_id or 0, None, workers)
        loss = train(values[part], labels[part])
        done += 1
        if done % 50 == 0:
            print(f"step {done}, loss {loss.numpy():.5f}", flush=True)
            step.assign(done)
            if is_chief:
                manager.save()
    print(f"ends after step {done}, weights {tf.reduce_sum(tf.abs(model.hidden)).numpy():.4f}")


if __name__ == "__main__":
    main()
