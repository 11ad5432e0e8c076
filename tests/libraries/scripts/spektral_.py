"""A graph convolution of Spektral, which needs Keras 2."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np
import tensorflow as tf
from spektral.layers import GCNConv
from where import show, strategy, table

x = table(64, 12).reshape(64, 3, 4)
edges = np.tile(np.full((1, 3, 3), 1 / 3, "float32"), (64, 1, 1))
with strategy().scope():
    nodes, adjacency = tf.keras.Input((3, 4)), tf.keras.Input((3, 3))
    convolution = GCNConv(2, kernel_initializer="ones")([nodes, adjacency])
    outputs = tf.keras.layers.Dense(1, kernel_initializer="ones")(tf.keras.layers.Flatten()(convolution))
    model = tf.keras.Model([nodes, adjacency], outputs)
    model.compile(tf.keras.optimizers.SGD(0.001), "mse")
show(model.fit([x, edges], x.sum(axis=(1, 2)), batch_size=16, epochs=3, shuffle=False, verbose=0))
