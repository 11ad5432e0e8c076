"""The model that `train.py` trains and `evaluate.py` measures, and the values of both."""

import os

import tensorflow as tf

FOLDER = os.environ["CHECKPOINTS"]
STEPS, EVERY = 200, 50  # a checkpoint every 50 steps
BATCH, FEATURES = 64, 8
TRAINING, EVALUATION = 1, 2  # seeds


class Model(tf.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = tf.Variable(tf.random.stateless_normal([FEATURES, 32], seed=[0, 3]) / 3)
        self.out = tf.Variable(tf.random.stateless_normal([32, 1], seed=[0, 4]) / 6)

    def loss(self, values: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Return the mean squared error."""
        return tf.reduce_mean((tf.tanh(values @ self.hidden) @ self.out - labels) ** 2)


def batch(number: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return a batch: for each number and seed always the same values of the same function."""
    values = tf.random.stateless_normal([BATCH, FEATURES], seed=[number, seed])
    return values, tf.sin(tf.reduce_sum(values, axis=1, keepdims=True))
