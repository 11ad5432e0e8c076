"""A loss and a metric of TensorFlow Ranking."""

import tensorflow as tf
import tensorflow_ranking as tfr
from where import show, strategy, table

x = table(64, 5)[:, :, None]
y = (x[:, :, 0] > 0.5).astype("float32")
with strategy().scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((5, 1)), tf.keras.layers.Dense(1, kernel_initializer="ones"), tf.keras.layers.Reshape((5,))]
    )
    model.compile("sgd", tfr.keras.losses.SoftmaxLoss(), metrics=[tfr.keras.metrics.MRRMetric()])
show(model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0))
