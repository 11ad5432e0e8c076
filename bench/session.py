"""Measures a step in `tfk8s.session()`, relative to a step in a plain `tf.compat.v1.Session`.

    tfk8s run --local --tf1 examples/recover/cluster.yaml bench/session.py

The sessions take turns, so that a change of the machine's speed affects all of them. Each is the first as often as the
others, because a step's time depends on the step before. A second plain session shows the difference between two equal
sessions.
"""

from __future__ import annotations

import os
import statistics
import time

import tensorflow as tf

import tfk8s

STEPS = 1000

with tf.device("/job:ps/task:0"):
    variable = tf.get_variable("variable", initializer=1.0)
with tf.device("/job:worker/task:1"):
    on_worker = variable + 1
on_master = tf.constant(1.0) + 1
feed_tensor = tf.placeholder(tf.float32, [1000])
target = os.environ["TFK8S_TARGET"]


plain_run = tf.Session.run.__wrapped__  # without the runner's patch of sessions


def seconds(session: tf.Session, fetch: object, feed: dict | None) -> float:
    """Return the seconds of a step."""
    start = time.perf_counter()
    plain_run(session, fetch, feed) if type(session) is tf.Session else session.run(fetch, feed)
    return time.perf_counter() - start


def main() -> None:
    """Measure, and print the results."""
    sessions = {"plain": tf.Session(target), "tfk8s": tfk8s.session(), "plain again": tf.Session(target)}
    sessions["plain"].run(variable.initializer)
    print(f"{'step':22} {'plain':>9} {'tfk8s':>9} {'ratio':>7} {'plain again':>12}")
    for step, fetch, feed in (
        ("on the master", on_master, None),
        ("ps to worker to master", on_worker, None),
        ("fed with 1000 floats", feed_tensor * 2, {feed_tensor: [1.0] * 1000}),
    ):
        for session in sessions.values():
            session.run(fetch, feed)
        times = {name: [] for name in sessions}
        turns = list(sessions.items())
        for _ in range(STEPS):
            for name, session in turns:
                times[name].append(seconds(session, fetch, feed))
            turns = [*turns[1:], turns[0]]
        median = {name: statistics.median(values) for name, values in times.items()}
        print(
            f"{step:22} {1e6 * median['plain']:7.0f}µs {1e6 * median['tfk8s']:7.0f}µs"
            f" {median['tfk8s'] / median['plain']:7.3f} {median['plain again'] / median['plain']:12.3f}"
        )


main()
