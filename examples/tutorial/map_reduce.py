"""Map and reduce: every task adds up the squares of its slice of an array; task 0 adds up the results."""

import numpy as np
import tensorflow as tf

TASKS = 2
array = np.arange(1000)

x = tf.placeholder(tf.int64, [1000])

# Map: the same function on every task. The tasks work at the same time, because they are independent.
partial_sums = []
for index, part in enumerate(tf.split(x, TASKS)):
    with tf.device(f"/job:local/task:{index}"):
        partial_sums.append(tf.reduce_sum(tf.square(part)))

# Reduce: each task sends only one number.
with tf.device("/job:local/task:0"):
    total = tf.add_n(partial_sums)

with tf.Session("grpc://localhost:2222") as session:
    found, result = session.run([partial_sums, total], {x: array})

for index, partial_sum in enumerate(found):
    print(f"task {index} {partial_sum}")
print(f"sum    {result}")
assert result == np.sum(array**2)
