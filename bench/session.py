"""What a step costs in a session of tfk8s', against a plain `tf.compat.v1.Session`, in one run.

    tfk8s run --local --tf1 examples/recover/cluster.yaml bench/session.py

Steps of both take turns, so that a machine whose speed drifts drifts for both. The second plain session shows how far
apart two equal ones come out.
"""

from __future__ import annotations

import os
import statistics
import time

import tensorflow as tf

import tfk8s

STEPS = 1000

with tf.device("/job:ps/task:0"):
    kept = tf.get_variable("kept", initializer=1.0)
with tf.device("/job:worker/task:1"):
    there = kept + 1
here = tf.constant(1.0) + 1
fed = tf.placeholder(tf.float32, [1000])
target = os.environ["TFK8S_TARGET"]


plain_run = tf.Session.run.__wrapped__  # without what the runner adds to every session of a script


def seconds(session: tf.Session, what: object, feed: dict | None) -> float:
    """Return how long a step takes."""
    start = time.perf_counter()
    plain_run(session, what, feed) if type(session) is tf.Session else session.run(what, feed)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print everything."""
    sessions = {"plain": tf.Session(target), "tfk8s": tfk8s.session(), "plain again": tf.Session(target)}
    sessions["plain"].run(kept.initializer)
    print(f"{'step':22} {'plain':>9} {'tfk8s':>9} {'ratio':>7} {'plain again':>12}")
    for what, fetch, feed in (
        ("on the master", here, None),
        ("ps to worker to master", there, None),
        ("fed with 1000 floats", fed * 2, {fed: [1.0] * 1000}),
    ):
        for session in sessions.values():
            session.run(fetch, feed)
        times = {name: [] for name in sessions}
        for _ in range(STEPS):
            for name, session in sessions.items():
                times[name].append(seconds(session, fetch, feed))
        median = {name: statistics.median(own) for name, own in times.items()}
        print(
            f"{what:22} {1e6 * median['plain']:7.0f}µs {1e6 * median['tfk8s']:7.0f}µs"
            f" {median['tfk8s'] / median['plain']:7.3f} {median['plain again'] / median['plain']:12.3f}"
        )


main()
