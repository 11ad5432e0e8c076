"""Measures each checkpoint on values that the training does not see, until the last step."""

import tensorflow as tf
from model import EVALUATION, FOLDER, STEPS, Model, batch

model, step = Model(), tf.Variable(0, trainable=False, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(model=model, step=step)
for path in tf.train.checkpoints_iterator(FOLDER, timeout=600):
    checkpoint.restore(path).expect_partial()
    loss = model.loss(*batch(0, EVALUATION))
    print(f"after step {step.numpy()}: loss {loss.numpy():.5f}", flush=True)
    if step.numpy() == STEPS:
        break
