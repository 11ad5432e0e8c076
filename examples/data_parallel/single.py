"""The first rung: one process, without any cluster. All other rungs have to learn what this one learns."""

import network
import tensorflow as tf

x = tf.data.make_initializable_iterator(network.batches())
tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, x.initializer)
cost = network.cost_of(network.parameters(), x.get_next())
train = tf.train.GradientDescentOptimizer(network.RATE).minimize(cost)
network.learn("", cost, train)
