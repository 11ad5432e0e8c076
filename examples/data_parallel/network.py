"""The code that all rungs of the ladder share: a 1-16-1 network that learns y = e^x, its batches, and the loop.

The arguments of every rung are here, too: the steps, the batch of a worker, and a file for the result.
"""

import argparse
import json
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

PS = "/job:ps/task:0"
WORKERS = ["/job:worker/task:0", "/job:worker/task:1"]
TARGET = "grpc://localhost:2222"
HIDDEN = 16
RATE = 0.1
GOLDEN_RATIO = -1640531527  # times 2^32, as a signed number

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch", type=int, default=32, help="the examples of a worker in a step")
parser.add_argument("--every", type=int, default=100, help="the steps of a run, if it has several")
parser.add_argument("--result", help="a file for the costs, their times and the bytes of a step, as JSON")
parser.add_argument("--core", type=int, help="the only core of this process")
options = parser.parse_args()
if options.core is not None:  # before TensorFlow starts threads, which inherit this
    os.sched_setaffinity(0, [options.core])
SIZES = [options.batch] * len(WORKERS)


def initial_values():
    random = np.random.RandomState(0)
    values = [
        random.normal(size=[1, HIDDEN]),
        np.zeros(HIDDEN),
        random.normal(size=[HIDDEN, 1]) / np.sqrt(HIDDEN),
        np.zeros(1),
    ]
    return [value.astype(np.float32) for value in values]


def parameters():
    """The network's variables: the first call creates them, later calls return them."""
    names = ("weights1", "biases1", "weights2", "biases2")
    with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
        return [
            # NumPy draws the initial values: those of a random operation depend on the graph around it.
            tf.get_variable(name, value.shape, initializer=tf.constant_initializer(value))
            for name, value in zip(names, initial_values(), strict=True)
        ]


def copies():
    """The network's variables on each worker."""
    found = []
    for number, worker in enumerate(WORKERS):
        with tf.device(worker), tf.variable_scope(f"worker{number}"):
            found.append(parameters())
    return found


def cost_of(parameters, x):
    weights1, biases1, weights2, biases2 = parameters
    hidden = tf.tanh(tf.matmul(x, weights1) + biases1)
    return tf.reduce_mean(tf.square(tf.matmul(hidden, weights2) + biases2 - tf.exp(x)))


def examples(numbers):
    """The examples with these numbers (int32): a sequence that fills -1…1 evenly, for NumPy as for TensorFlow."""
    x = numbers * np.int32(GOLDEN_RATIO)
    return (x.astype(np.float32) if isinstance(x, np.ndarray) else tf.cast(x, tf.float32))[:, None] / 2.0**31


def batches(worker=None):
    """The batches that a worker reads; without a worker, whole batches."""
    start, size = (0, sum(SIZES)) if worker is None else (sum(SIZES[:worker]), SIZES[worker])

    def batch(step):
        first = tf.cast(step, tf.int32) * sum(SIZES) + start
        return examples(tf.range(first, first + size))

    return tf.data.Dataset.range(2**40).map(batch).prefetch(1)


def bytes_moved():
    """The bytes that all processes of this machine's cluster have sent so far, with gRPC's headers and requests."""
    with open("/proc/self/net/dev") as devices:
        return next(int(line.split()[1]) for line in devices if line.strip().startswith("lo:"))


class Recorder:
    """Notes the cost of each step and its time, prints some, and writes them all."""

    def __init__(self):
        self.costs, self.seconds = [], []
        self.bytes, self.start = bytes_moved(), time.perf_counter()

    def add(self, costs):
        """Add the steps of a run, which share its time."""
        begin = self.seconds[-1] if self.seconds else 0.0
        self.costs += np.ravel(costs).tolist()
        self.seconds += np.linspace(begin, time.perf_counter() - self.start, np.size(costs) + 1)[1:].tolist()

    def finish(self):
        steps = len(self.costs)
        for step in sorted({0, 1, 10, *range(100, steps, 100), steps - 1}):
            if step < steps:
                print(f"step {step:3d}: cost {self.costs[step]:.6f}")
        print(f"{steps / self.seconds[-1]:.0f} steps/s")
        if options.result:
            moved = (bytes_moved() - self.bytes) / steps
            with open(options.result, "w") as file:
                json.dump({"costs": self.costs, "seconds": self.seconds, "bytes": moved}, file)


def learn(target, cost, train, feeds=None):
    """Run `train` until all steps are done. A run has as many steps as `cost` has elements."""
    with tf.Session(target) as session:
        # Variables outlive a session on a cluster: initialize them again, in case this is a second run.
        initialize = [tf.global_variables_initializer(), tf.tables_initializer()]
        session.run(initialize)
        session.run([cost, train], feeds and feeds(0))  # TensorFlow prepares the graph in its first run
        session.run(initialize)
        recorder = Recorder()
        while len(recorder.costs) < options.steps:
            recorder.add(session.run([cost, train], feeds and feeds(len(recorder.costs)))[0])
    recorder.finish()
