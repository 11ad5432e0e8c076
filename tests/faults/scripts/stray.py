"""A script whose session names an address that no task has."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
print("a step", flush=True)
tf.Session("grpc://localhost:2299").run(tf.constant(1))
