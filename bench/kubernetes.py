"""How long a cluster takes to come up on Kubernetes, and what `render` takes, beside Python itself.

    python bench/kubernetes.py IMAGE [RUNS]

IMAGE has TensorFlow and is on the nodes. Everything happens in a namespace of its own, in the kubeconfig's current
context, and is removed again. For figures that can be compared, nothing else may run on the machine.

`up` is 1 master, 1 ps and 2 workers. Its time is that of the whole process; the servers' is from the same start until
the last of them has written its first log line, which says that it listens. By hand it is `kubectl apply` of the same
objects, rendered before: what no client can do without. Each begins when the machine has put away the run before: for
seconds after a pod is gone, kubelet and containerd still have work.

A virtual machine does not have its processors to itself. How much of them others took meanwhile ("steal", proc(5)) is
told of each run, and the times are given a second time for the half of the runs of which others took least.
"""

from __future__ import annotations

import datetime
import functools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

TFK8S = [sys.executable, "-m", "tfk8s"]
FOUR = """\
apiVersion: tfk8s.dev/v1
name: four
image: {image}
jobs:
  master: {{cpu: 200m, memory: 1Gi}}
  ps: {{cpu: 200m, memory: 1Gi}}
  worker: {{tasks: 2, cpu: 200m, memory: 1Gi}}
"""
REST_SECONDS = 20
RESTS = 0.2  # of all processors
LARGE = "apiVersion: tfk8s.dev/v1\nname: large\nimage: tf:1\njobs: {master: 1, ps: 999, worker: 9000}\n"


def call(*command: str) -> str:
    """Run a command; return what it prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def seconds(action: Callable[[], object]) -> float:
    """Return how long something takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def listening(namespace: str, task: str) -> float:
    """Return when a task's server said that it listens, in seconds since the epoch."""
    log = call("kubectl", "--namespace", namespace, "logs", f"four-{task}", "--timestamps")
    first = next(line for line in log.splitlines() if " tfk8s:" in line)
    moment, _, fraction = first.split()[0].rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(f"{moment}+00:00").timestamp() + float(f"0.{fraction[:6]}")


def last_listening(namespace: str) -> float:
    """Return when the last of the four servers said that it listens."""
    return max(listening(namespace, task) for task in ("master-0", "ps-0", "worker-0", "worker-1"))


def ticks() -> list[int]:
    """Return what the processors have done since boot: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def shares(before: list[int]) -> tuple[float, float]:
    """Return which part of the processors' time since then was used, and which part others took."""
    spent = [now - then for now, then in zip(ticks(), before, strict=True)]
    idle, stolen = spent[3] + spent[4], spent[7]
    return 1 - (idle + stolen) / sum(spent), stolen / sum(spent)


def rest() -> None:
    """Wait until the machine has put away what ran last."""
    for _ in range(REST_SECONDS):
        before = ticks()
        time.sleep(1)
        if shares(before)[0] < RESTS:
            return


class Run(NamedTuple):
    """How long four servers took to listen, which part of the processors others took, and the rest of the command."""

    seconds: float
    stolen: float
    rest: float = 0.0


def start_four(namespace: str, start: Callable[[], object]) -> Run:
    """Return how long it takes until the servers listen."""
    rest()
    before, began = ticks(), time.time()
    start()
    returned = time.time()
    stolen = shares(before)[1]
    listen = last_listening(namespace)
    return Run(listen - began, stolen, returned - listen)


def by_hand(namespace: str, job_file: str) -> Run:
    """Return how long it takes by `kubectl apply`."""
    where = ["--namespace", namespace]
    rendered = call(*TFK8S, "render", *where, job_file)

    def apply() -> None:
        kubectl = ["kubectl", *where, "apply", "--server-side", "--field-manager", "tfk8s", "-f", "-"]
        subprocess.run(kubectl, input=rendered, check=True, stdout=subprocess.DEVNULL, text=True)
        for job, tasks in (("master", 1), ("ps", 1), ("worker", 2)):
            ready = f"--for=jsonpath={{.status.readyReplicas}}={tasks}"
            call("kubectl", *where, "wait", ready, f"statefulset/four-{job}", "--timeout=120s")

    run = start_four(namespace, apply)
    call(*TFK8S, "down", *where, "four")
    return run


def by_up(namespace: str, job_file: str) -> tuple[Run, float, float]:
    """Return how long it takes by `up`, and how long a `restart` and `down` take then."""
    where = ["--namespace", namespace]
    up = start_four(namespace, functools.partial(call, *TFK8S, "up", *where, job_file))
    restart = seconds(lambda: call(*TFK8S, "restart", *where, "four", "worker/1"))
    return up, restart, seconds(lambda: call(*TFK8S, "down", *where, "four"))


def measure(namespace: str, job_file: str, runs: int) -> tuple[list[Run], list[tuple[Run, float, float]]]:
    """Return what each run takes by hand and by `up`, which come first in turn: some machines tire of work."""
    hands, ups = [], []
    for number in range(runs):
        if number % 2:
            ups.append(by_up(namespace, job_file))
        hands.append(by_hand(namespace, job_file))
        if not number % 2:
            ups.append(by_up(namespace, job_file))
    return hands, ups


def main() -> None:
    """Measure and print everything."""
    image, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    folder, namespace = Path(tempfile.mkdtemp(prefix="tfk8s-bench-")), f"tfk8s-bench-{int(time.time())}"
    (folder / "four.yaml").write_text(FOUR.format(image=image))
    (folder / "large.yaml").write_text(LARGE)
    print(f"{'what':48} {'median':>8} {'least':>8}   bound")
    for what, command, bound in (
        ("python -c pass", [sys.executable, "-c", "pass"], ""),
        ("render of 10,000 tasks", [*TFK8S, "render", str(folder / "large.yaml")], "0.2 s"),
    ):
        show(what, [seconds(lambda command=command: call(*command)) for _ in range(4 * runs)], bound)
    call("kubectl", "create", "namespace", namespace)
    try:
        hands, lives = measure(namespace, str(folder / "four.yaml"), runs)
    finally:
        call("kubectl", "delete", "namespace", namespace, "--wait=false")
    ups, restarts, downs = zip(*lives, strict=True)
    show_starts("by hand: until the last of four servers listens", hands, "")
    show_starts("up: until the last of four servers listens", ups, "3.5 s")
    show("up: from then until it returns", [up.rest for up in ups], "0.5 s")
    show("restart of one task, right after", restarts, "")
    show("down", downs, "")
    ratios = [up.seconds / hand.seconds for hand, up in zip(hands, ups, strict=True)]
    print(f"{'up / by hand':48} {statistics.median(ratios):7.2f}")
    for what, told in (("by hand", hands), ("up", ups)):
        print(f"{what}, and what others took: " + ", ".join(f"{run.seconds:.2f} s {run.stolen:.0%}" for run in told))


def show_starts(what: str, runs: Sequence[Run], bound: str) -> None:
    """Print the times of all runs, and of those that others disturbed least."""
    show(what, [run.seconds for run in runs], bound)
    quiet = sorted(runs, key=lambda run: run.stolen)[: (len(runs) + 1) // 2]
    show(f"  where others took {max(run.stolen for run in quiet):.0%} at most", [run.seconds for run in quiet], bound)


def show(what: str, took: Sequence[float], bound: str) -> None:
    """Print the times of one thing."""
    print(f"{what:48} {statistics.median(took):7.2f}s {min(took):7.2f}s" + (f" < {bound}" if bound else ""))


if __name__ == "__main__":
    main()
