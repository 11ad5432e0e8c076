"""Measures the start of a cluster on Kubernetes, and the time of `render`.

    python bench/kubernetes.py IMAGE [RUNS]

IMAGE must contain TensorFlow and be on the nodes. The benchmark runs in a new namespace of the kubeconfig's current
context, and removes the namespace. Run nothing else on the machine, so that the figures are comparable.

`up` starts 1 master, 1 ps and 2 workers. The time of the servers ends when the last server writes its first log line,
which means that the server listens. "By hand" is a `kubectl apply` of the same rendered objects, which is the least
that any client must do. Each run waits until the machine is idle, because kubelet and containerd work for some seconds
after a pod is gone.

Other virtual machines may use the processors of the host. Each run shows the share that they used ("steal", proc(5)).
The times are also printed for the half of the runs with the smallest share.
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
IDLE_TIMEOUT = 20
MAX_IDLE_SHARE = 0.2  # of all processors
LARGE = "apiVersion: tfk8s.dev/v1\nname: large\nimage: tf:1\njobs: {master: 1, ps: 999, worker: 9000}\n"


def call(*command: str) -> str:
    """Run a command, and return its output."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def seconds(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def listening(namespace: str, task: str) -> float:
    """Return the time at which a task's server began to listen, in seconds since the epoch."""
    log = call("kubectl", "--namespace", namespace, "logs", f"four-{task}", "--timestamps")
    first = next(line for line in log.splitlines() if " tfk8s:" in line)
    moment, _, fraction = first.split()[0].rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(f"{moment}+00:00").timestamp() + float(f"0.{fraction[:6]}")


def last_listening(namespace: str) -> float:
    """Return the time at which the last of the four servers began to listen."""
    return max(listening(namespace, task) for task in ("master-0", "ps-0", "worker-0", "worker-1"))


def ticks() -> list[int]:
    """Return the processors' times since boot: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def shares(before: list[int]) -> tuple[float, float]:
    """Return the shares of the processors' time since then that were used here, and stolen."""
    spent = [now - start for now, start in zip(ticks(), before, strict=True)]
    idle, stolen = spent[3] + spent[4], spent[7]
    return 1 - (idle + stolen) / sum(spent), stolen / sum(spent)


def wait_until_idle() -> None:
    """Wait until the machine is idle, but not for ever."""
    for _ in range(IDLE_TIMEOUT):
        before = ticks()
        time.sleep(1)
        if shares(before)[0] < MAX_IDLE_SHARE:
            return


class Start(NamedTuple):
    """The seconds until four servers listen, the stolen share, and the seconds until the command returns."""

    seconds: float
    stolen: float
    rest: float = 0.0


def start_four(namespace: str, start: Callable[[], object]) -> Start:
    """Start the servers, and return the measured times."""
    wait_until_idle()
    before, began = ticks(), time.time()
    start()
    returned = time.time()
    stolen = shares(before)[1]
    listen = last_listening(namespace)
    return Start(listen - began, stolen, returned - listen)


def by_hand(namespace: str, job_file: str) -> Start:
    """Measure the start with `kubectl apply`."""
    options = ["--namespace", namespace]
    rendered = call(*TFK8S, "render", *options, job_file)

    def apply() -> None:
        kubectl = ["kubectl", *options, "apply", "--server-side", "--field-manager", "tfk8s", "-f", "-"]
        subprocess.run(kubectl, input=rendered, check=True, stdout=subprocess.DEVNULL, text=True)
        for job, tasks in (("master", 1), ("ps", 1), ("worker", 2)):
            ready = f"--for=jsonpath={{.status.readyReplicas}}={tasks}"
            call("kubectl", *options, "wait", ready, f"statefulset/four-{job}", "--timeout=120s")

    run = start_four(namespace, apply)
    call(*TFK8S, "down", *options, "four")
    return run


def by_up(namespace: str, job_file: str) -> tuple[Start, float, float]:
    """Measure the start with `up`, then `restart` and `down`."""
    options = ["--namespace", namespace]
    up = start_four(namespace, functools.partial(call, *TFK8S, "up", *options, job_file))
    restart = seconds(lambda: call(*TFK8S, "restart", *options, "four", "worker/1"))
    return up, restart, seconds(lambda: call(*TFK8S, "down", *options, "four"))


def measure(namespace: str, job_file: str, runs: int) -> tuple[list[Start], list[tuple[Start, float, float]]]:
    """Measure all runs by hand and with `up`. They take turns to come first, because some machines slow down."""
    hands, ups = [], []
    for number in range(runs):
        if number % 2:
            ups.append(by_up(namespace, job_file))
        hands.append(by_hand(namespace, job_file))
        if not number % 2:
            ups.append(by_up(namespace, job_file))
    return hands, ups


def main() -> None:
    """Measure, and print the results."""
    image, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    folder, namespace = Path(tempfile.mkdtemp(prefix="tfk8s-bench-")), f"tfk8s-bench-{int(time.time())}"
    (folder / "four.yaml").write_text(FOUR.format(image=image))
    (folder / "large.yaml").write_text(LARGE)
    print(f"{'command':48} {'median':>8} {'minimum':>8}   bound")
    for name, command, bound in (
        ("python -c pass", [sys.executable, "-c", "pass"], ""),
        ("render of 10,000 tasks", [*TFK8S, "render", str(folder / "large.yaml")], "0.2 s"),
    ):
        show(name, [seconds(lambda command=command: call(*command)) for _ in range(4 * runs)], bound)
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
    for name, starts in (("by hand", hands), ("up", ups)):
        print(f"{name}, and steal: " + ", ".join(f"{start.seconds:.2f} s {start.stolen:.0%}" for start in starts))


def show_starts(name: str, runs: Sequence[Start], bound: str) -> None:
    """Print the times of all runs, and of the half with the least steal."""
    show(name, [run.seconds for run in runs], bound)
    quiet = sorted(runs, key=lambda run: run.stolen)[: (len(runs) + 1) // 2]
    show(f"  with at most {max(run.stolen for run in quiet):.0%} steal", [run.seconds for run in quiet], bound)


def show(name: str, times: Sequence[float], bound: str) -> None:
    """Print the median and the minimum of times."""
    print(f"{name:48} {statistics.median(times):7.2f}s {min(times):7.2f}s" + (f" < {bound}" if bound else ""))


if __name__ == "__main__":
    main()
