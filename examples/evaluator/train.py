"""Trains on the chief and the workers by MultiWorkerMirroredStrategy. The chief writes a checkpoint every 50 steps."""

import tensorflow as tf
from model import EVERY, FOLDER, STEPS, TRAINING, Model, batch

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any other operation of TensorFlow
resolver = strategy.cluster_resolver
members = strategy.num_replicas_in_sync
own = 0 if resolver.task_type == "chief" else resolver.task_id + 1
with strategy.scope():
    model = Model()
    step = tf.Variable(0, trainable=False, dtype=tf.int64)
manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model, step=step), FOLDER, max_to_keep=None)
manager.restore_or_initialize()


def replica(values, labels):
    """Take one step with a part of the batch."""
    with tf.GradientTape() as tape:
        loss = model.loss(values, labels)
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = tf.distribute.get_replica_context().all_reduce("MEAN", gradients)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        variable.assign_sub(0.1 * gradient)
    return loss


@tf.function
def train(values, labels):
    """Take one step on all members."""
    return strategy.reduce("MEAN", strategy.run(replica, args=(values, labels)), axis=None)


for done in range(int(step.numpy()) + 1, STEPS + 1):
    values, labels = batch(done, TRAINING)
    loss = train(values[own::members], labels[own::members])
    if done % EVERY == 0:
        print(f"step {done}, loss {loss.numpy():.5f}", flush=True)
        step.assign(done)
        if resolver.task_type == "chief":
            manager.save()
