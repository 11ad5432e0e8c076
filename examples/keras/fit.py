"""Trains a Keras model on the cluster's workers; with --alone, in this process only."""

import sys

import keras
import numpy as np
import tensorflow as tf

import tfk8s

keras.utils.set_random_seed(1)
random = np.random.default_rng(1)
inputs = random.normal(size=(4096, 20)).astype("float32")
labels = inputs @ random.normal(size=(20, 1)) > 0

strategy = tf.distribute.get_strategy() if "--alone" in sys.argv else tfk8s.strategy()
print("replicas:", strategy.num_replicas_in_sync)
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((20,)), keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(1, activation="sigmoid")]
    )
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
history = model.fit(inputs, labels, batch_size=256, epochs=5, shuffle=False, verbose=0).history
for epoch, (loss, accuracy) in enumerate(zip(history["loss"], history["accuracy"], strict=True)):
    print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.4f}")
