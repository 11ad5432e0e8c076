"""How long it takes until something runs, against what `import tensorflow` takes on the same machine.

    python bench/start.py [RUNS]

Every command is timed as a whole process, in turn with the import, so that a machine whose speed drifts drifts for
both; printed are medians and the ratio of each pair, with the bound that the project sets itself.
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
    """Run a command; return what it prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def tfk8s(*arguments: str) -> str:
    """Run tfk8s; return what it prints."""
    return call(*TFK8S, *arguments)


def seconds(action: Callable[[], object]) -> float:
    """Return how long something takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def import_tensorflow() -> None:
    """What everything is compared with."""
    call(sys.executable, "-c", "import tensorflow")


def up_and_down(job_file: str, name: str) -> float:
    """Return how long `up` takes; what it started is removed."""
    took = seconds(lambda: tfk8s("up", "--local", job_file))
    tfk8s("down", "--local", name)
    return took


def run_two_tasks() -> float:
    """Return how long a whole run takes, from nothing to the result to nothing."""
    return seconds(lambda: tfk8s("run", "--local", "--tf1", CLUSTER, TWO_TASKS))


def second_submit(runs: int) -> list[float]:
    """Return how long scripts take on a cluster that has run one before."""
    tfk8s("up", "--local", CLUSTER)
    try:
        tfk8s("submit", "--local", "--tf1", "tutorial", TWO_TASKS)
        return [seconds(lambda: tfk8s("submit", "--local", "--tf1", "tutorial", TWO_TASKS)) for _ in range(runs)]
    finally:
        tfk8s("down", "--local", "tutorial")


def memory(job_file: str, name: str) -> float:
    """Return the memory of a cluster's supervisor and tasks in GB, shared pages counted once (PSS)."""
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
    """Measure and print everything."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tfk8s-bench-")
    sixteen = Path(os.environ["XDG_STATE_HOME"]) / "sixteen.yaml"
    sixteen.write_text(SIXTEEN)
    import_tensorflow()  # the first one also reads the disk
    print(f"{'what':34} {'median':>8} {'import':>8} {'ratio':>7}   bound")
    for what, action, bound in (
        ("run --local two_tasks.py", run_two_tasks, 1.4),
        ("up --local, 2 tasks", lambda: up_and_down(CLUSTER, "tutorial"), 0.5),
        ("up --local, 16 tasks", lambda: up_and_down(str(sixteen), "sixteen"), 0.8),
    ):
        pairs = [(seconds(import_tensorflow), action()) for _ in range(runs)]
        reference, median = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(own / other for other, own in pairs)
        print(f"{what:34} {median:7.2f}s {reference:7.2f}s {ratio:7.2f} < {bound}")
    print(f"{'submit to a running cluster':34} {statistics.median(second_submit(runs)):7.2f}s {'':16} < 0.5 s")
    print(f"{'16 tasks and their supervisor':34} {memory(str(sixteen), 'sixteen'):6.2f}GB {'':16} < 1 GB")
    for what, arguments, bound in (
        ("--help", ["--help"], 120),
        ("--version", ["--version"], 60),
        ("validate", ["validate", CLUSTER], None),
    ):
        took = statistics.median(seconds(lambda arguments=arguments: tfk8s(*arguments)) for _ in range(3 * runs))
        print(f"{what:34} {1000 * took:6.0f}ms" + (f" {'':17} < {bound} ms" if bound else ""))


if __name__ == "__main__":
    main()
