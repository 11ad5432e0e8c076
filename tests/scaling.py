"""A session that stays open while workers come and go, on either backend."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tfk8s.backends.devices import list_devices
from tfk8s.backends.protocol import Backend
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.plan import Scaling
from tfk8s.core.spec import Task

Start = Callable[[Path], "subprocess.Popen[str]"]

TIMEOUT = 120
STAYING = (Task("worker", 0), Task("ps", 0))

_GRAPH = """
import tensorflow as tf, tfk8s
with tf.device("/job:ps/task:0"):
    weights = tf.get_variable("weights", [1000], initializer=tf.random_normal_initializer())
    is_over = tf.get_variable("is_over", [], tf.bool, initializer=tf.zeros_initializer())
with tf.device("/job:worker/task:0"):
    here = tf.identity(weights)
with tfk8s.session() as session:
"""
_LOOP = f"""{_GRAPH}
    session.run(tf.global_variables_initializer())
    first, steps = session.run(here), 0
    print(first.tobytes().hex(), flush=True)
    while not session.run(is_over):
        assert (session.run(here) == first).all()
        steps += 1
    print(steps > 100)
"""
_LATER = f"""{_GRAPH}
    print(len(session.list_devices()), session.run(here).tobytes().hex())
    session.run(is_over.assign(True))
"""


def scale_under_a_session(backend: Backend, name: str, rounds: int, folder: Path, start: Start) -> None:
    """Change the number of workers again and again; the variables, a session and the other servers stay.

    Args:
        backend, name: a cluster of a ps and two workers.
        rounds: how often.
        folder: for scripts.
        start: runs a TensorFlow 1 script on the cluster.
    """
    loop, later = folder / "loop.py", folder / "later.py"
    loop.write_text(_LOOP)
    later.write_text(_LATER)
    servers = _incarnations(backend, name)
    session = start(loop)
    assert session.stdout is not None
    weights = session.stdout.readline().strip()
    for _ in range(rounds):
        for workers in (4, 1):
            assert backend.scale(name, {"worker": workers}) is Scaling.IN_PLACE
            wait_until_ready(backend, name, TIMEOUT)
    backend.scale(name, {"worker": 2})
    wait_until_ready(backend, name, TIMEOUT)
    assert _incarnations(backend, name) == servers
    other, errors = start(later).communicate(timeout=TIMEOUT)
    assert other.split() == ["3", weights], errors
    rest, errors = session.communicate(timeout=TIMEOUT)
    assert (session.returncode, rest) == (0, "True\n"), errors


def _incarnations(backend: Backend, name: str) -> dict[Task, int]:
    """Return the incarnation of each server that stays."""
    answers = {answer.task: answer.devices for answer in list_devices(backend, backend.observe(name))}
    return {task: answers[task][0].incarnation for task in STAYING}
