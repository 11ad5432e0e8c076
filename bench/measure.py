"""Measures two ways to do the same work in turn, so that a change of the machine's speed affects both.

In each turn, each way runs once, and the first of the last turn comes last. A comparison has the ratio of each turn.
Its figures are medians, with the smallest and the largest of all turns beside them.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import math
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from tfk8s.backends.local import network_namespace, state

K = TypeVar("K")
T = TypeVar("T")

TFK8S = (sys.executable, "-m", "tfk8s")
SERVER = """
import json, sys
import tensorflow as tf
server = tf.distribute.Server(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
print("up", flush=True)
server.join()
"""


# ---- figures ---------------------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """The median, the smallest and the largest of some figures."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        """Return the spread of figures, of which there must be at least one."""
        return cls(statistics.median(figures), min(figures), max(figures))

    def overlaps(self, other: Spread) -> bool:
        """Return whether some value lies in both ranges."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Bound:
    """The project's own limit for a comparison.

    Attributes:
        lowest, highest: the limits of the median.
        unit: the unit of the median of tfk8s; "" limits the ratio.
    """

    lowest: float = 0.0
    highest: float = math.inf
    unit: str = ""


@dataclass(frozen=True)
class Comparison:
    """Two ways to do the same work.

    Attributes:
        what: the work as tfk8s does it.
        against: the other way.
        unit: the unit of the figures: "s", "B" or any other.
        turns: the number of turns.
        ours: the figures of tfk8s.
        theirs: the figures of the other way.
        ratio: tfk8s' figure divided by the other, in each turn.
        bound: the project's own limit, if there is one.
    """

    what: str
    against: str
    unit: str
    turns: int
    ours: Spread
    theirs: Spread
    ratio: Spread
    bound: Bound | None = None

    @property
    def holds(self) -> bool:
        """Whether the bound holds."""
        if not self.bound:
            return True
        return self.bound.lowest <= (self.ours if self.bound.unit else self.ratio).median <= self.bound.highest


def compare(
    what: str, against: str, unit: str, ours: Sequence[float], theirs: Sequence[float], bound: Bound | None = None
) -> Comparison:
    """Return the comparison of the figures of two ways, which have one figure for each turn."""
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return Comparison(what, against, unit, len(ratios), Spread.of(ours), Spread.of(theirs), Spread.of(ratios), bound)


def take_turns(ways: Mapping[K, Callable[[], T]], turns: int) -> dict[K, list[T]]:
    """Return the results of each way, one for each turn."""
    results: dict[K, list[T]] = {name: [] for name in ways}
    order = list(ways)
    for _ in range(turns):
        for name in order:
            results[name].append(ways[name]())
        order = [*order[1:], order[0]]
    return results


def seconds(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


# ---- programs --------------------------------------------------------------------------------------------------------


def call(*command: str | Path, **environment: str) -> str:
    """Run a command, and return its output."""
    done = subprocess.run(
        command,
        check=True,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return done.stdout


def tfk8s(*arguments: str | Path) -> str:
    """Run tfk8s, and return its output."""
    return call(*TFK8S, *arguments)


@contextlib.contextmanager
def own_state() -> Iterator[Path]:
    """Keep local clusters apart from the user's; yield the folder of their state.

    SIGINT, which a shell's background ignores, and SIGTERM then end a benchmark like Ctrl-C, so that no cluster stays.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tfk8s-bench-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        yield Path(folder)


@contextlib.contextmanager
def local_cluster(name: str, job_file: str | Path) -> Iterator[None]:
    """Start a cluster on this machine; remove the cluster after use."""
    try:
        tfk8s("up", "--local", job_file)
        yield
    finally:
        tfk8s("down", "--local", name)


def pss(pid: int | str) -> float:
    """Return the memory of a process in bytes, with shared pages counted in proportion; 0 if the process has ended."""
    with contextlib.suppress(OSError):  # proc_pid_smaps(5)
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return 1024.0 * int(re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)[0])
    return 0.0


def descendants(pid: int) -> Iterator[int]:
    """Yield a process and all processes below it."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # the process has ended
        return
    for child in children:
        yield from descendants(int(child))


def supervisor(name: str) -> int:
    """Return the process id of the supervisor of a cluster on this machine."""
    pid = state.folder(name).supervisor()
    assert pid is not None, f"{name} has no supervisor"
    return pid


def cluster_memory(name: str) -> float:
    """Return the memory of a cluster on this machine: the supervisor, its tasks, the fork server and its forks."""
    return sum(map(pss, descendants(supervisor(name))))


# ---- processes without tfk8s -----------------------------------------------------------------------------------------


def in_another_network(work: Callable[[], T]) -> T:
    """Call a function in a process with its own network namespace, where all ports are free."""
    with concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("fork"), network_namespace.enter
    ) as pool:
        return pool.submit(work).result()


@contextlib.contextmanager
def plain_servers(jobs: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Start a process with a server of TensorFlow for each task, and wait until all serve; end them after use.

    The first server is at port 2222 of this process' network, and the others are at the next ports.

    Yields:
        The process id of each task.
    """
    ports = iter(range(2222, 2222 + sum(jobs.values())))
    cluster = {job: [f"localhost:{next(ports)}" for _ in range(tasks)] for job, tasks in jobs.items()}
    servers: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for job, addresses in cluster.items():
            for index in range(len(addresses)):
                command = [sys.executable, "-c", SERVER, json.dumps(cluster), job, str(index)]
                servers[f"{job}/{index}"] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for task, server in servers.items():
            if server.stdout is None or server.stdout.readline() != b"up\n":
                raise SystemExit(f"the server of {task} ended before it served")
        yield {task: server.pid for task, server in servers.items()}
    finally:
        for server in servers.values():
            server.kill()
            server.wait()


@contextlib.contextmanager
def workers(count: int, *command: str | Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a program as each worker of a cluster, by TF_CONFIG; end the workers after use.

    The first worker is at port 2222 of this process' network, and the others are at the next ports.

    Yields:
        The processes, whose output is a pipe.
    """
    cluster = {"worker": [f"localhost:{2222 + index}" for index in range(count)]}
    pipe = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with contextlib.ExitStack() as stack:
        processes = []
        for index in range(count):
            config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
            environment = {**os.environ, "TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "1"}
            processes.append(stack.enter_context(subprocess.Popen(command, env=environment, **pipe)))
            stack.callback(processes[-1].kill)
        yield processes
