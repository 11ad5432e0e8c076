"""The mean of 100 numbers, half of them on each task. Slices are equal, so the mean of their means is the mean."""

import numpy as np
import tensorflow as tf

numbers = np.random.RandomState(0).uniform(size=100)

x = tf.placeholder(tf.float64, [100])

with tf.device("/job:local/task:0"):
    first = tf.reduce_mean(x[:50])

with tf.device("/job:local/task:1"):
    second = tf.reduce_mean(x[50:])

with tf.device("/job:local/task:0"):
    mean = (first + second) / 2

with tf.Session("grpc://localhost:2222") as session:
    result = session.run(mean, {x: numbers})

print(f"mean  {result:.6f}")
print(f"NumPy {np.mean(numbers):.6f}")
assert abs(result - np.mean(numbers)) < 1e-6
