"""Measures a step in tfk8s' sessions, relative to a step in a plain `tf.compat.v1.Session`.

    python bench/session.py

A script in a cluster on this machine opens all sessions anew in each turn. Its sessions run each step in turn, because
a step's time depends on the step before. The figure of a turn is the median of its steps. A patched session is one of
`tf.compat.v1.Session` in a script of `submit`. A plain session runs its steps without tfk8s' patch.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import page
from measure import Bound, Comparison, compare, local_cluster, seconds, take_turns, tfk8s

TITLE = "Steps"
CLUSTER = Path(__file__).parents[1] / "examples" / "recover" / "cluster.yaml"
TURNS = 7
SESSIONS = ("`tfk8s.session()`", "patched `Session`", "plain")
SAME = Bound(highest=1.02)
MIB = 1 << 20
STEPS = {  # in a turn
    "no-op": 500,
    "a scalar from ps to worker to master": 200,
    "1 MiB fed and fetched": 50,
    "16 MiB fed and fetched": 10,
    "64 MiB fed and fetched": 4,
}


def measure_steps() -> dict[str, dict[str, list[float]]]:
    """Return the figures of each step in each session, one for each turn. Runs in a script."""
    import numpy as np
    import tensorflow as tf

    with tf.device("/job:ps/task:0"):
        variable = tf.get_variable("variable", initializer=1.0)
    with tf.device("/job:worker/task:1"):
        on_worker = variable + 1
    fed = tf.placeholder(tf.float32, [None])
    returned = tf.identity(fed)
    steps: dict[str, tuple[object, object]] = {
        name: (returned, {fed: np.zeros(int(name.split()[0]) * MIB // 4, np.float32)}) for name in list(STEPS)[2:]
    }
    steps = {"no-op": (tf.no_op(), None), "a scalar from ps to worker to master": (on_worker, None), **steps}
    figures: dict[str, dict[str, list[float]]] = {name: {session: [] for session in SESSIONS} for name in steps}
    for turn in range(TURNS):
        sessions = open_sessions(turn)
        if not turn:
            sessions["plain"].run(variable.initializer)
        for name, (fetch, feed) in steps.items():
            for session in sessions.values():
                session.run(fetch, feed)  # the first step of a graph sends the graph
            ways = {session: functools.partial(step, sessions, session, fetch, feed) for session in SESSIONS}
            for session, times in take_turns(ways, STEPS[name]).items():
                figures[name][session].append(statistics.median(times))
        for session in sessions.values():
            session.close()
    return figures


def open_sessions(turn: int) -> dict[str, Any]:
    """Return new sessions. Each turn opens another session first."""
    import tensorflow as tf

    import tfk8s

    target = os.environ["TFK8S_TARGET"]
    opened = dict(zip(SESSIONS, (tfk8s.session, lambda: tf.Session(target), lambda: tf.Session(target)), strict=True))
    return {name: opened[name]() for name in (*SESSIONS[turn % 3 :], *SESSIONS[: turn % 3])}


def step(sessions: Mapping[str, Any], name: str, fetch: object, feed: object) -> float:
    """Return the seconds of a step in one of the sessions."""
    session = sessions[name]
    run = functools.partial(type(session).run.__wrapped__, session) if name == "plain" else session.run
    return seconds(lambda: run(fetch, feed))


def comparisons() -> Iterator[Comparison]:
    """Measure steps."""
    with local_cluster("recover", CLUSTER):
        output = tfk8s("submit", "--local", "--tf1", "recover", __file__)
    figures = json.loads(output.splitlines()[-1])
    for name in STEPS:
        for session in SESSIONS[:2]:
            times = figures[name]
            yield compare(f"{name}, {session}", "plain `Session`", "s", times[session], times["plain"], SAME)


if __name__ == "__main__":
    print(json.dumps(measure_steps())) if "TFK8S_TARGET" in os.environ else page.show(TITLE, comparisons())
