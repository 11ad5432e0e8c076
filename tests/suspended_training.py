"""A training that is suspended, resumed and killed in between, here and on Kubernetes: it ends with the same weights.

The gate does both twice, and `TFK8S_TEST_TIMES=10` before a release ten times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

TIMES = int(os.environ.get("TFK8S_TEST_TIMES", "2"))
STEPS = 300

# Gradient descent with a momentum, so that the weights at the end depend on each step. Each step is a checkpoint.
TRAIN = f"""
import sys, time
import tensorflow as tf
x = tf.reshape(tf.range(32.0), [16, 2]) / 32
y = tf.reduce_sum(x, 1, keepdims=True) * 3 + 1
w, m, step = tf.Variable(tf.zeros([2, 1])), tf.Variable(tf.zeros([2, 1])), tf.Variable(0)
manager = tf.train.CheckpointManager(tf.train.Checkpoint(w=w, m=m, step=step), sys.argv[1], max_to_keep=3)
manager.restore_or_initialize()
print("begins at", int(step), flush=True)
while step < {STEPS}:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ w - y) ** 2)
    m.assign(0.9 * m + tape.gradient(loss, w))
    w.assign_sub(0.01 * m)
    step.assign_add(1)
    manager.save()
    time.sleep(float(sys.argv[2]))
print("ends with", w.numpy().tobytes().hex(), flush=True)
"""


def kill(command: Popen[str], seconds: float) -> None:
    """Kill a command after some seconds, wherever it is then."""
    time.sleep(seconds)
    command.kill()
    command.communicate()


def moments(times: int) -> Iterator[float]:
    """Yield the seconds after which a command is killed: from its first request to its wait for ends."""
    return (0.3 + 0.25 * number % 1.5 for number in range(times))


def write(folder: Path) -> Path:
    """Write the program; return its path."""
    path = folder / "train.py"
    path.write_text(TRAIN)
    return path


def disturb(
    start: Callable[[str], Popen[str]], run: Callable[[str], None], until_begun: Callable[[], None], times: int
) -> None:
    """Suspend and resume a cluster whose program has begun; kill both commands, and let a second one of each finish."""
    for seconds in moments(times):
        until_begun()
        kill(start("suspend"), seconds)
        run("suspend")
        kill(start("resume"), seconds)
        run("resume")


def begins(output: str) -> list[int]:
    """Return the steps at which the program has begun."""
    return [int(line.rpartition(" ")[2]) for line in output.splitlines() if "begins at" in line]


def weights(output: str) -> str:
    """Return the weights at the end."""
    (found,) = [line.rpartition(" ")[2] for line in output.splitlines() if "ends with" in line]
    return found
