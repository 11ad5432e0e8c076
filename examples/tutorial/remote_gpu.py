"""An operation on the GPU of a remote task, and its placement if that task has no GPU.

An operation pinned to a device that does not exist is an error, unless soft placement is allowed: then
it runs on the best device that does exist.
"""

import tensorflow as tf

matrix = tf.placeholder(tf.float32, [2, 2])

with tf.device("/job:local/task:0/device:GPU:0"):
    square = tf.matmul(matrix, matrix, name="square")

config = tf.ConfigProto(allow_soft_placement=True)
with tf.Session("grpc://localhost:2222", config=config) as session:
    # The master lists the devices of all tasks, by their full names.
    devices = [device.name for device in session.list_devices()]
    if "/job:local/replica:0/task:0/device:GPU:0" not in devices:
        print("/job:local/task:0 has no GPU: soft placement will choose another device.")

    # The graphs of the tasks name the device of each operation.
    options, placed = tf.RunOptions(output_partition_graphs=True), tf.RunMetadata()
    result = session.run(square, {matrix: [[1, 2], [3, 4]]}, options, placed)

for graph in placed.partition_graphs:
    for node in graph.node:
        if node.name == "square":
            print("square ran on", node.device)
print(result.tolist())
