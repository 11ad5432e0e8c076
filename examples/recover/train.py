"""Training that goes on from its last checkpoint when a task is lost: train.py FOLDER [STEP ...]

It waits for Enter at each STEP, so that there is time to kill something.
"""

import sys

import numpy as np
import tensorflow as tf

import tfk8s

STEPS, EVERY = 60, 10
folder, pauses = sys.argv[1], {int(word) for word in sys.argv[2:]}

with tf.device("/job:ps/task:0"):
    weights = tf.get_variable("weights", [4], initializer=tf.zeros_initializer())
    step = tf.train.get_or_create_global_step()
x, y = tf.placeholder(tf.float32, [20, 4]), tf.placeholder(tf.float32, [20])
gradients = []
for task in range(2):
    with tf.device(f"/job:worker/task:{task}"):
        half = slice(10 * task, 10 * task + 10)
        cost = tf.reduce_mean((tf.linalg.matvec(x[half], weights) - y[half]) ** 2)
        gradients += tf.gradients(cost, [weights])
with tf.device("/job:ps/task:0"):
    gradient = tf.add_n(gradients) / 2
    train = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(gradient, weights)], step)
initialize = tf.global_variables_initializer()
saver = tf.train.Saver(max_to_keep=None)


def batch(number):
    """The data of a step depend on nothing else: a step that is done again is done alike."""
    inputs = np.random.default_rng(number).normal(size=(20, 4))
    return {x: inputs, y: inputs @ [1, -2, 3, -4]}


def restore(session):
    """Called with each new session."""
    latest = tf.train.latest_checkpoint(folder)
    if latest:
        saver.restore(session, latest)
        print("continues after step", session.run(step), flush=True)
    else:
        session.run(initialize)


for session in tfk8s.session(recover=restore):
    with session:
        while (number := session.run(step)) < STEPS:
            if number in pauses:
                pauses.remove(number)
                print(f"at step {number}: press Enter", flush=True)
                sys.stdin.readline()
            session.run(train, batch(number))
            if (number + 1) % EVERY == 0:
                saver.save(session, f"{folder}/model", number + 1)
        print("weights", *(f"{weight:.3f}" for weight in session.run(weights)), flush=True)
