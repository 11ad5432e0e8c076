"""A script with a constant of 2.1 GiB, more than the 2 GiB that a message can hold."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
print("a step", flush=True)
tf.constant(np.zeros(2_254_857_831, np.uint8))
