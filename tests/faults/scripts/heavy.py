"""A script that keeps a worker, its transport and all processors busy for a while."""

import multiprocessing
import os
import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf

HOGS = 8


def hog(end):
    while time.time() < end:
        pass


if __name__ == "__main__":
    end = time.time() + float(sys.argv[1])
    context = multiprocessing.get_context("fork")
    hogs = [context.Process(target=hog, args=(end,)) for _ in range(HOGS)]
    for one in hogs:
        one.start()
    tf.disable_v2_behavior()
    much = np.ones(25_000_000, np.float32)
    with tf.device("/job:worker/task:1"):
        fed = tf.placeholder(tf.float32, [None])
        square = tf.random_uniform([1500, 1500])
        steps = [tf.reduce_sum(fed), tf.reduce_sum(square @ square), tf.zeros([25_000_000])]
    with tf.Session(os.environ["TFK8S_TARGET"]) as session:
        while time.time() < end:
            session.run(steps, {fed: much})
    for one in hogs:
        one.join()
