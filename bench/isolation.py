"""Measures sessions and runs whose tasks listen on loopback alone, relative to those in a network namespace.

    python bench/isolation.py

`--allow-exposed-ports` starts a cluster on loopback, as a container without network namespaces does. A cluster of each
kind runs all the time. In each turn, a script in each cluster opens a session; its figure is the median of the
session's steps.
"""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import page
from measure import Bound, Comparison, compare, seconds, take_turns, tfk8s

TITLE = "Loopback in place of a network namespace"
EXAMPLES = Path(__file__).parents[1] / "examples"
WAYS: dict[str, tuple[str, ...]] = {"loopback": ("--allow-exposed-ports",), "namespace": ()}  # options
TURNS, STEPS = 7, 500
STEP, RUN = Bound(highest=1.03), Bound(highest=1.05)


def measure_step() -> float:
    """Return the seconds of a step that sends a scalar from ps to worker to master. Runs in a script."""
    import tensorflow as tf

    with tf.device("/job:ps/task:0"):
        variable = tf.get_variable("variable", initializer=1.0)
    with tf.device("/job:worker/task:1"):
        on_worker = variable + 1
    with tf.Session(os.environ["TFK8S_TARGET"]) as session:
        session.run(variable.initializer)
        session.run(on_worker)  # the first step of a graph sends the graph
        return statistics.median(seconds(lambda: session.run(on_worker)) for _ in range(STEPS))


def run(options: Sequence[str]) -> float:
    """Return the seconds of the start of a cluster, a script, and the cluster's removal."""
    example = EXAMPLES / "tutorial"
    words: tuple[str | Path, ...] = ("--local", *options, "--tf1", example / "cluster.yaml", example / "two_tasks.py")
    return seconds(lambda: tfk8s("run", *words))


@contextlib.contextmanager
def cluster(name: str, folder: Path) -> Iterator[None]:
    """Start a cluster of one of the ways; check which isolation holds; remove the cluster after use."""
    job_file = folder / f"{name}.yaml"
    job_file.write_text((EXAMPLES / "recover" / "cluster.yaml").read_text().replace("name: recover", f"name: {name}"))
    try:
        tfk8s("up", "--local", *WAYS[name], job_file)
        isolation = next(line for line in tfk8s("status", "--local", name).splitlines() if line.startswith("isolation"))
        assert ("loopback" in isolation) == (name == "loopback"), isolation
        yield
    finally:
        tfk8s("down", "--local", name)


def comparisons() -> Iterator[Comparison]:
    """Measure steps, then runs."""
    with tempfile.TemporaryDirectory() as folder, cluster("loopback", Path(folder)), cluster("namespace", Path(folder)):
        scripts = {name: functools.partial(tfk8s, "submit", "--local", "--tf1", name, __file__) for name in WAYS}
        for script in scripts.values():
            script()  # the fork server imports TensorFlow
        steps = {name: [float(text) for text in texts] for name, texts in take_turns(scripts, TURNS).items()}
    yield compare("a step", "in a namespace", "s", steps["loopback"], steps["namespace"], STEP)
    for options in WAYS.values():
        run(options)
    runs = take_turns({name: functools.partial(run, options) for name, options in WAYS.items()}, TURNS)
    yield compare("`tfk8s run --local`", "in a namespace", "s", runs["loopback"], runs["namespace"], RUN)


if __name__ == "__main__":
    print(measure_step()) if "TFK8S_TARGET" in os.environ else page.show(TITLE, comparisons())
