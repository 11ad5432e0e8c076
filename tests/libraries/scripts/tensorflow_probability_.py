"""A model of TensorFlow Probability, which needs Keras 2."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
import tensorflow_probability as tfp
from where import show, strategy, table

x = table(64, 4)
with strategy().scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(1, kernel_initializer="ones", input_shape=(4,)),
            tfp.layers.DistributionLambda(lambda mean: tfp.distributions.Normal(mean, 1.0)),
        ]
    )
    model.compile("sgd", lambda y, distribution: -distribution.log_prob(y))
show(model.fit(x, x[:, :1], batch_size=16, epochs=3, shuffle=False, verbose=0))
