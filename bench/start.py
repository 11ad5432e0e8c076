"""Measures the start of clusters and scripts on this machine, relative to separate processes.

    python bench/start.py

A separate process imports TensorFlow and starts a `tf.distribute.Server`. The last process ends the start when it has
its server. `up` returns when all servers answer. The memory is PSS, which counts shared pages once. The memory of
servers is that of the tasks and of their supervisor. The memory of a cluster has the fork server, too, which imports
TensorFlow for all scripts; it counts after a script that does nothing.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import page
from measure import (
    Bound,
    Comparison,
    call,
    cluster_memory,
    compare,
    in_another_network,
    local_cluster,
    plain_servers,
    pss,
    seconds,
    supervisor,
    take_turns,
    tfk8s,
)  # fmt: skip

TITLE = "Clusters and scripts on this machine"
EXAMPLES = Path(__file__).parents[1] / "examples" / "tutorial"
CLUSTER, TWO_TASKS = EXAMPLES / "cluster.yaml", EXAMPLES / "two_tasks.py"
TURNS = 5
TURNS_OF = {2: TURNS, 8: TURNS, 16: 3, 32: 3}  # by the number of tasks
MAX_IMPORTS = {2: 0.5, 16: 0.8}  # the start's bound, relative to `import tensorflow`
MAX_MEMORY = {16: 1e9}
SCRIPT = """
import os
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
x = tf.placeholder(tf.int32, [])
with tf.Session(os.environ.get("TFK8S_TARGET", "")) as session:
    print(session.run(x + 300, {x: 2}))
"""


class Cost(NamedTuple):
    """The seconds of a start, then the memory of the servers and of all processes in bytes."""

    seconds: float
    servers: float = 0.0
    cluster: float = 0.0


def import_tensorflow() -> float:
    """Return the seconds of a process that imports TensorFlow."""
    return seconds(lambda: call(sys.executable, "-c", "import tensorflow"))


def by_tfk8s(tasks: int, folder: Path) -> Cost:
    """Return the cost of a cluster."""
    job_file, script = folder / "cluster.yaml", folder / "nothing.py"
    script.touch()
    job_file.write_text(f"apiVersion: tfk8s.dev/v1\nname: large\njobs: {{worker: {tasks}}}\n")
    start = time.perf_counter()
    with local_cluster("large", job_file):
        elapsed = time.perf_counter() - start
        status = json.loads(tfk8s("status", "--local", "large", "-o", "json"))
        pids = [task["where"].removeprefix("pid ") for task in status["tasks"]]
        servers = sum(map(pss, (*pids, supervisor("large"))))
        tfk8s("submit", "--local", "large", script)  # ends after the fork server's import
        return Cost(elapsed, servers, cluster_memory("large"))


def by_hand(tasks: int) -> Cost:
    """Return the cost of a process for each server."""
    start = time.perf_counter()
    with plain_servers({"worker": tasks}) as pids:
        elapsed, memory = time.perf_counter() - start, sum(map(pss, pids.values()))
        return Cost(elapsed, memory, memory)


def clusters(tasks: int, folder: Path) -> Iterator[Comparison]:
    """Measure the start of a cluster."""
    ways: dict[str, Callable[[], Cost]] = {
        "tfk8s": lambda: by_tfk8s(tasks, folder),
        "by hand": lambda: in_another_network(functools.partial(by_hand, tasks)),
        "import": lambda: Cost(import_tensorflow()),
    }
    if tasks not in MAX_IMPORTS:
        del ways["import"]
    figures = take_turns(ways, TURNS_OF[tasks])
    times, servers, cluster = (
        {name: [cost[part] for cost in costs] for name, costs in figures.items()} for part in range(3)
    )
    processes, memory = f"{tasks} separate processes", MAX_MEMORY.get(tasks)
    yield compare(f"`up` of {tasks} tasks", processes, "s", times["tfk8s"], times["by hand"])
    if tasks in MAX_IMPORTS:
        bound = Bound(highest=MAX_IMPORTS[tasks])
        yield compare(f"`up` of {tasks} tasks", "`import tensorflow`", "s", times["tfk8s"], times["import"], bound)
    bound = Bound(highest=memory, unit="B") if memory else None
    yield compare(f"memory of {tasks} servers", processes, "B", servers["tfk8s"], servers["by hand"], bound)
    yield compare(f"memory of a cluster of {tasks} tasks", processes, "B", cluster["tfk8s"], cluster["by hand"])


def scripts(folder: Path) -> Iterator[Comparison]:
    """Measure scripts in a new cluster, and in a cluster that has run a script before."""
    run = functools.partial(tfk8s, "run", "--local", "--tf1", CLUSTER, TWO_TASKS)
    figures = take_turns({"tfk8s": lambda: seconds(run), "import": import_tensorflow}, TURNS)
    yield compare("`run` of a script", "`import tensorflow`", "s", *figures.values(), Bound(highest=1.4))
    script = folder / "script.py"
    script.write_text(SCRIPT)
    submit = functools.partial(tfk8s, "submit", "--local", "tutorial", script)
    with local_cluster("tutorial", CLUSTER):
        submit()
        python = functools.partial(call, sys.executable, script)
        figures = take_turns({"tfk8s": lambda: seconds(submit), "python": lambda: seconds(python)}, TURNS)
    yield compare("second `submit`", "`python script.py`", "s", *figures.values(), Bound(highest=0.5, unit="s"))


def comparisons() -> Iterator[Comparison | str]:
    """Measure clusters and scripts."""
    import_tensorflow()  # the first import reads from disk
    with tempfile.TemporaryDirectory() as name:
        for tasks in TURNS_OF:
            yield from clusters(tasks, Path(name))
        yield from scripts(Path(name))


if __name__ == "__main__":
    page.show(TITLE, comparisons())
