"""Measures four workers of a program, relative to four processes that are started by hand.

    python bench/programs.py

The program makes one step with MultiWorkerMirroredStrategy. The time counts from the start of the command, or of the
first process, until the last worker has made the step. The memory (PSS, shared pages counted once) is that of all
processes then, with those of tfk8s itself.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import page
from measure import TFK8S, Bound, Comparison, cluster_memory, compare, in_another_network, pss, take_turns, workers

TITLE = "Programs"
TURNS = 5
WORKERS = 4
STEP_LINE = "first step"
PROGRAM = f"""
import time
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weights = tf.Variable(tf.ones([64, 64]))

def replica(values):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((values @ weights) ** 2)
    (gradient,) = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, [weights]))
    weights.assign_sub(0.1 * gradient)
    return loss

@tf.function
def step(values):
    return strategy.reduce("MEAN", strategy.run(replica, args=(values,)), axis=None)

step(tf.ones([8, 64])).numpy()
print("{STEP_LINE}", flush=True)
time.sleep(600)
"""
Cost = tuple[float, float]  # seconds and bytes


def wait_for_steps(lines: Iterator[str], count: int) -> None:
    """Read lines until that many workers have made their step."""
    for line in lines:
        count -= line.count(STEP_LINE)  # with PYTHONUNBUFFERED, lines of two workers can be one
        if count <= 0:
            return
    raise SystemExit("a program ended before its first step")


def by_tfk8s(folder: Path) -> Cost:
    """Return the cost of `tfk8s run`."""
    job_file = folder / "job.yaml"
    jobs = {"worker": {"tasks": WORKERS, "program": ["program.py"]}}
    job_file.write_text(json.dumps({"apiVersion": "tfk8s.dev/v1", "name": "bench", "jobs": jobs}))
    start = time.perf_counter()
    command = subprocess.Popen(
        [*TFK8S, "run", "--local", job_file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        wait_for_steps(iter(command.stdout), WORKERS)
        elapsed = time.perf_counter() - start
        return elapsed, pss(command.pid) + cluster_memory("bench")
    finally:
        command.terminate()
        command.communicate()


def by_hand(folder: Path) -> Cost:
    """Return the cost of a process for each worker."""
    start = time.perf_counter()
    with workers(WORKERS, sys.executable, folder / "program.py") as processes:
        for process in processes:
            wait_for_steps(iter(process.stdout), 1)
        return time.perf_counter() - start, sum(pss(process.pid) for process in processes)


def comparisons() -> Iterator[Comparison]:
    """Measure the time and the memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        hand = functools.partial(in_another_network, functools.partial(by_hand, folder))
        figures = take_turns({"tfk8s": functools.partial(by_tfk8s, folder), "by hand": hand}, TURNS)
    (times, memory), (other_times, other_memory) = (zip(*costs, strict=True) for costs in figures.values())
    against = f"{WORKERS} processes by hand"
    yield compare(f"first step of {WORKERS} workers", against, "s", times, other_times, Bound(highest=0.5))
    yield compare(f"memory of {WORKERS} workers", against, "B", memory, other_memory, Bound(highest=0.6))


if __name__ == "__main__":
    page.show(TITLE, comparisons())
