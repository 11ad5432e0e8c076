"""The ranking task of TensorFlow Recommenders."""

import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs
from where import show, strategy


class Ratings(tfrs.Model):
    def __init__(self):
        super().__init__()
        ones = tf.keras.initializers.Constant(0.1)
        self.users = tf.keras.layers.Embedding(8, 4, embeddings_initializer=ones)
        self.films = tf.keras.layers.Embedding(8, 4, embeddings_initializer=ones)
        self.task = tfrs.tasks.Ranking(loss=tf.keras.losses.MeanSquaredError(reduction="sum"))

    def compute_loss(self, features, training=False):
        rating = tf.reduce_sum(self.users(features["user"]) * self.films(features["film"]), axis=1, keepdims=True)
        return self.task(labels=features["rating"], predictions=rating)


numbers = np.arange(64)
rows = {"user": numbers % 8, "film": numbers // 8, "rating": (numbers % 5).astype("float32")[:, None]}
data = tf.data.Dataset.from_tensor_slices(rows).batch(16)
with strategy().scope():
    model = Ratings()
    model.compile(tf.keras.optimizers.Adagrad(0.1))
show(model.fit(data, epochs=3, verbose=0))
