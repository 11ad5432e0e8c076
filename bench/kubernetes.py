"""How long a cluster takes to come up on Kubernetes, and what `render` takes, beside Python itself.

    python bench/kubernetes.py IMAGE [RUNS]

IMAGE has TensorFlow and is on the nodes. Everything happens in a namespace of its own, in the kubeconfig's current
context, and is removed again. For figures that can be compared, nothing else may run on the machine.

`up` is 1 master, 1 ps and 2 workers. Its time is that of the whole process; the servers' is from the same start until
the last of them has written its first log line, which says that it listens. By hand it is `kubectl apply` of the same
objects, rendered before: what no client can do without.
"""

from __future__ import annotations

import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

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
LIFE = (
    ("by hand: until the last of four servers listens", ""),
    ("up: until the last of four servers listens", "3.5 s"),
    ("up: from then until it returns", "0.5 s"),
    ("restart of one task, right after", ""),
    ("down", ""),
)
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


def by_hand(namespace: str, job_file: str) -> float:
    """Return how long it takes until the servers listen, from `kubectl apply` on."""
    where = ["--namespace", namespace]
    rendered = call(*TFK8S, "render", *where, job_file)
    start = time.time()
    kubectl = ["kubectl", *where, "apply", "--server-side", "--field-manager", "tfk8s", "-f", "-"]
    subprocess.run(kubectl, input=rendered, check=True, stdout=subprocess.DEVNULL, text=True)
    for job, tasks in (("master", 1), ("ps", 1), ("worker", 2)):
        ready = f"--for=jsonpath={{.status.readyReplicas}}={tasks}"
        call("kubectl", *where, "wait", ready, f"statefulset/four-{job}", "--timeout=120s")
    last = last_listening(namespace) - start
    call(*TFK8S, "down", *where, "four")
    return last


def life(namespace: str, job_file: str) -> tuple[float, ...]:
    """Return how long it takes until the servers listen, by hand and by `up`, the rest of `up`, a `restart`, `down`."""
    where = ["--namespace", namespace]
    hand = by_hand(namespace, job_file)
    start = time.time()
    call(*TFK8S, "up", *where, job_file)
    up = time.time() - start
    last = last_listening(namespace) - start
    restart = seconds(lambda: call(*TFK8S, "restart", *where, "four", "worker/1"))
    return hand, last, up - last, restart, seconds(lambda: call(*TFK8S, "down", *where, "four"))


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
        lives = [life(namespace, str(folder / "four.yaml")) for _ in range(runs)]
    finally:
        call("kubectl", "delete", "namespace", namespace, "--wait=false")
    for (what, bound), took in zip(LIFE, zip(*lives, strict=True), strict=True):
        show(what, list(took), bound)
    print(f"{'up / by hand':48} {statistics.median(one[1] / one[0] for one in lives):7.2f}")
    print(json.dumps({"runs": runs, "load": Path("/proc/loadavg").read_text().split()[0]}))


def show(what: str, took: list[float], bound: str) -> None:
    """Print the times of one thing."""
    print(f"{what:48} {statistics.median(took):7.2f}s {min(took):7.2f}s" + (f" < {bound}" if bound else ""))


if __name__ == "__main__":
    main()
