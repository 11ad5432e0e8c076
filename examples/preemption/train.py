"""A program of MultiWorkerMirroredStrategy that loses no step when one of its workers is preempted.

Each step trains on the next global batch, of which each worker takes its part. After SIGTERM to one worker, all workers
save at the same step, and end with exit code 42, after which tfk8s runs them again.
"""

import argparse

import tensorflow as tf

BATCH, FEATURES = 64, 8


def batch(step: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the global batch of a step: always the same values of the same function."""
    values = tf.random.stateless_normal([BATCH, FEATURES], seed=[step, 1])
    return values, tf.sin(tf.reduce_sum(values, axis=1, keepdims=True))


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
        hidden = tf.Variable(tf.random.stateless_normal([FEATURES, 32], seed=[0, 2]) / 3)
        out = tf.Variable(tf.random.stateless_normal([32, 1], seed=[0, 3]) / 6)
    step = tf.Variable(0, trainable=False, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(hidden=hidden, out=out, step=step)
    manager = tf.train.CheckpointManager(checkpoint, options.checkpoints, max_to_keep=2)
    # The handler restores the last checkpoint of the folder. At a preemption, the chief saves there, and the other
    # workers in folders of their own beside it, which nobody reads.
    handler = tf.distribute.experimental.PreemptionCheckpointHandler(resolver, checkpoint, options.checkpoints)
    print(f"{workers} workers, from step {int(step)}", flush=True)

    def replica(values: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.tanh(values @ hidden) @ out - labels) ** 2)
        variables = [hidden, out]
        gradients = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, variables))
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    @tf.function
    def train(values: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(replica, args=(values, labels)), axis=None)

    while (done := int(step)) < options.steps:
        values, labels = batch(done)
        part = slice(resolver.task_id or 0, None, workers)
        loss = handler.run(train, values[part], labels[part])  # saves and ends before the step, if it has to
        step.assign_add(1)
        if (done + 1) % 50 == 0:
            print(f"step {done + 1}, loss {loss.numpy():.5f}", flush=True)
            if is_chief:
                manager.save()
    print(f"ends after step {int(step)}, weights {tf.reduce_sum(tf.abs(hidden)).numpy():.4f}")


if __name__ == "__main__":
    main()
