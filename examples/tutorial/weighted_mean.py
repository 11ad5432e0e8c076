"""The mean of 100 numbers in unequal slices: the mean of each task is weighted by its number of numbers."""

import numpy as np
import tensorflow as tf

numbers = np.random.RandomState(0).uniform(size=100)


def mean_and_size(part):
    return tf.reduce_mean(part), tf.cast(tf.size(part), tf.float64)


x = tf.placeholder(tf.float64, [None])

with tf.device("/job:local/task:0"):
    first, first_size = mean_and_size(x[:20])

with tf.device("/job:local/task:1"):
    second, second_size = mean_and_size(x[20:])

with tf.device("/job:local/task:0"):
    unweighted = (first + second) / 2
    mean = (first * first_size + second * second_size) / (first_size + second_size)

with tf.Session("grpc://localhost:2222") as session:
    wrong, result = session.run([unweighted, mean], {x: numbers})

print(f"unweighted {wrong:.6f}")
print(f"weighted   {result:.6f}")
print(f"NumPy      {np.mean(numbers):.6f}")
assert abs(result - np.mean(numbers)) < 1e-6
