"""A network learns y = e^x on one device, without any cluster. parallel.py has to give the same result."""

import network
import tensorflow as tf


def run():
    with tf.Graph().as_default():
        cost = network.add_replica()
        train = tf.train.GradientDescentOptimizer(network.RATE).minimize(cost)
        with tf.Session() as session:
            return network.learn(session, train)


if __name__ == "__main__":
    network.report(*run())
