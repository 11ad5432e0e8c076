"""A KerasLayer of TensorFlow Hub that trains, from a SavedModel on this machine."""

import tempfile

import tensorflow as tf
import tensorflow_hub as hub
from where import show, strategy, table

folder = tempfile.mkdtemp()
part = tf.keras.Sequential([tf.keras.layers.Dense(3, "tanh", kernel_initializer="ones", input_shape=(4,))])
part.save(folder, save_format="tf")
x = table(64, 4)
with strategy().scope():
    model = tf.keras.Sequential(
        [hub.KerasLayer(folder, input_shape=(4,), trainable=True), tf.keras.layers.Dense(1, kernel_initializer="ones")]
    )
    model.compile("sgd", "mse")
show(model.fit(x, x.sum(axis=1), batch_size=16, epochs=3, shuffle=False, verbose=0))
