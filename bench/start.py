"""Measures the start of clusters and scripts, relative to `import tensorflow` on the same machine.

    python bench/start.py [RUNS]

Each command is timed as a whole process. Commands and imports take turns, so that a change of the machine's speed
affects both. The output has medians, the median ratio of the pairs, and the project's bound.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples" / "tutorial"
CLUSTER, TWO_TASKS = str(EXAMPLES / "cluster.yaml"), str(EXAMPLES / "two_tasks.py")
TFK8S = [sys.executable, "-m", "tfk8s"]
SIXTEEN = "apiVersion: tfk8s.dev/v1\nname: sixteen\njobs:\n  worker: 16\n"


def call(*command: str) -> str:
    """Run a command, and return its output."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def tfk8s(*arguments: str) -> str:
    """Run tfk8s, and return its output."""
    return call(*TFK8S, *arguments)


def seconds(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def import_tensorflow() -> None:
    """Import TensorFlow in a new process."""
    call(sys.executable, "-c", "import tensorflow")


def up_and_down(job_file: str, name: str) -> float:
    """Return the seconds that `up` takes, and remove the cluster."""
    up_seconds = seconds(lambda: tfk8s("up", "--local", job_file))
    tfk8s("down", "--local", name)
    return up_seconds


def run_two_tasks() -> float:
    """Return the seconds of a whole `run`, which starts and removes a cluster."""
    return seconds(lambda: tfk8s("run", "--local", "--tf1", CLUSTER, TWO_TASKS))


def second_submit(runs: int) -> list[float]:
    """Return the seconds of scripts on a cluster that has run a script before."""
    tfk8s("up", "--local", CLUSTER)
    try:
        tfk8s("submit", "--local", "--tf1", "tutorial", TWO_TASKS)
        return [seconds(lambda: tfk8s("submit", "--local", "--tf1", "tutorial", TWO_TASKS)) for _ in range(runs)]
    finally:
        tfk8s("down", "--local", "tutorial")


def memory(job_file: str, name: str) -> float:
    """Return the memory of a cluster's supervisor and tasks in GB, with shared pages counted once (PSS)."""
    tfk8s("up", "--local", job_file)
    try:
        pids = re.findall(r'"pid (\d+)"', tfk8s("status", "--local", name, "-o", "json"))
        supervisor = Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1]
        return sum(pss(pid) for pid in (*pids, supervisor)) / 1e9
    finally:
        tfk8s("down", "--local", name)


def pss(pid: str) -> int:
    """Return a process' proportional share of memory in bytes (proc_pid_smaps_rollup(5))."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[1])


def main() -> None:
    """Measure, and print the results."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tfk8s-bench-")
    sixteen = Path(os.environ["XDG_STATE_HOME"]) / "sixteen.yaml"
    sixteen.write_text(SIXTEEN)
    import_tensorflow()  # the first import reads from disk
    print(f"{'command':34} {'median':>8} {'import':>8} {'ratio':>7}   bound")
    for name, action, bound in (
        ("run --local two_tasks.py", run_two_tasks, 1.4),
        ("up --local, 2 tasks", lambda: up_and_down(CLUSTER, "tutorial"), 0.5),
        ("up --local, 16 tasks", lambda: up_and_down(str(sixteen), "sixteen"), 0.8),
    ):
        pairs = [(seconds(import_tensorflow), action()) for _ in range(runs)]
        reference, median = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(command / reference for reference, command in pairs)
        print(f"{name:34} {median:7.2f}s {reference:7.2f}s {ratio:7.2f} < {bound}")
    print(f"{'submit to a running cluster':34} {statistics.median(second_submit(runs)):7.2f}s {'':16} < 0.5 s")
    print(f"{'16 tasks and their supervisor':34} {memory(str(sixteen), 'sixteen'):6.2f}GB {'':16} < 1 GB")
    for name, arguments, bound in (
        ("--help", ["--help"], 120),
        ("--version", ["--version"], 60),
        ("validate", ["validate", CLUSTER], None),
    ):
        elapsed = statistics.median(seconds(lambda arguments=arguments: tfk8s(*arguments)) for _ in range(3 * runs))
        print(f"{name:34} {1000 * elapsed:6.0f}ms" + (f" {'':17} < {bound} ms" if bound else ""))


if __name__ == "__main__":
    main()
