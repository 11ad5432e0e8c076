"""Data parallelism: the same network and the same batches, but each of two workers sees half of every batch.

The master keeps the variables. The workers compute the gradients of their halves at the same time; the
master averages them, which gives the gradient of the whole batch, and applies it.
"""

import network
import tensorflow as tf

MASTER = "/job:master/task:0"
WORKERS = ["/job:worker/task:0", "/job:worker_/task:0"]


def run():
    with tf.Graph().as_default():
        with tf.device(MASTER):
            parameters = network.parameters()  # created here, on the master, for all workers

        for worker in WORKERS:
            with tf.device(worker):
                cost = network.add_replica()
                tf.add_to_collection("gradients", tf.gradients(cost, parameters))

        with tf.device(MASTER):
            # One tuple per parameter, with its gradient from each worker.
            per_parameter = zip(*tf.get_collection("gradients"), strict=True)
            averages = [tf.add_n(gradients) / len(WORKERS) for gradients in per_parameter]
            optimizer = tf.train.GradientDescentOptimizer(network.RATE)
            train = optimizer.apply_gradients(zip(averages, parameters, strict=True))

        with tf.Session("grpc://localhost:2222") as session:
            return network.learn(session, train)


if __name__ == "__main__":
    network.report(*run())
