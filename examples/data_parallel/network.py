"""The code that single.py and parallel.py share: a 1-16-1 network that learns y = e^x, its batches, and the loop."""

import time

import numpy as np
import tensorflow as tf

STEPS = 400
BATCH = 64
HIDDEN = 16
RATE = 0.1


def variable(name, value):
    # NumPy draws the initial values: those of a random operation depend on the graph around it.
    return tf.get_variable(name, value.shape, initializer=tf.constant_initializer(value))


def parameters():
    """The network's variables, in scope `ps`: the first call creates them, later calls return them."""
    random = np.random.RandomState(0)
    with tf.variable_scope("ps", reuse=tf.AUTO_REUSE):
        return [
            variable("weights1", random.normal(size=[1, HIDDEN])),
            variable("biases1", np.zeros(HIDDEN)),
            variable("weights2", random.normal(size=[HIDDEN, 1]) / np.sqrt(HIDDEN)),
            variable("biases2", np.zeros(1)),
        ]


def add_replica():
    """Adds the network once to the graph, and puts its inputs and its cost in collections for `learn`."""
    weights1, biases1, weights2, biases2 = parameters()
    x = tf.placeholder(tf.float32, [None, 1])
    y = tf.placeholder(tf.float32, [None, 1])
    hidden = tf.tanh(tf.matmul(x, weights1) + biases1)
    cost = tf.reduce_mean(tf.square(tf.matmul(hidden, weights2) + biases2 - y))
    tf.add_to_collection("x", x)
    tf.add_to_collection("y", y)
    tf.add_to_collection("costs", cost)
    return cost


def batches():
    random = np.random.RandomState(1)
    for _ in range(STEPS):
        x = random.uniform(-1, 1, size=[BATCH, 1])
        yield x, np.exp(x)


def learn(session, train):
    """Runs `train` on every batch, split among the replicas. Returns the cost of each step, and steps/s."""
    xs, ys, costs = [tf.get_collection(name) for name in ("x", "y", "costs")]
    # Variables outlive a session on a cluster: initialize them again, in case this is a second run.
    session.run(tf.global_variables_initializer())
    curve = []
    start = time.time()
    for x, y in batches():
        feed = dict(zip(xs, np.split(x, len(xs)), strict=True))
        feed.update(zip(ys, np.split(y, len(ys)), strict=True))
        replica_costs, _ = session.run([costs, train], feed)
        curve.append(np.mean(replica_costs))
    return curve, STEPS / (time.time() - start)


def report(curve, speed):
    for step in (0, 1, 10, 100, STEPS - 1):
        print(f"step {step:3d}: cost {curve[step]:.6f}")
    print(f"{speed:.0f} steps/s")
