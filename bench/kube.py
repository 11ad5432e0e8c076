"""Measures the life of a cluster on Kubernetes, relative to kubectl with the same objects.

    python bench/kube.py

Runs if the kubeconfig's current context is of kind, in a namespace of its own. The image of `TFK8S_TEST_IMAGE` must
contain TensorFlow and be on the nodes.

The cluster has 1 master, 1 ps and 2 workers. It has started when the last server writes its first log line, which means
that the server listens. Each life begins when the machine is idle, because kubelet and containerd work for some seconds
after a pod is gone.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import page
from measure import TFK8S, Bound, Comparison, call, compare, seconds, take_turns, tfk8s
from start import SCRIPT

TITLE = "Kubernetes"
TURNS = 5
IMAGE = os.environ.get("TFK8S_TEST_IMAGE", "docker.io/tfk8s/test:dev")
TASKS = {"master": 1, "ps": 1, "worker": 2}
FOUR = f"""\
apiVersion: tfk8s.dev/v1
name: four
image: {IMAGE}
jobs:
  master: {{cpu: 200m, memory: 1Gi}}
  ps: {{cpu: 200m, memory: 1Gi}}
  worker: {{tasks: 2, cpu: 200m, memory: 1Gi}}
"""
ONE = f"""\
apiVersion: tfk8s.dev/v1
name: {{name}}
image: {IMAGE}
max_duration: 8h
jobs: {{{{worker: {{{{cpu: 100m, memory: 1Gi}}}}}}}}
"""
CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: past}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
TIMEOUT = "--timeout=120s"
IDLE_TIMEOUT = 20
MAX_IDLE_SHARE = 0.2  # of all processors


class Life(NamedTuple):
    """The seconds of the parts of a cluster's life.

    Attributes:
        start: until the last server listens.
        rest: from then until the command returns.
        restart: of one task.
        down: until all pods are gone.
    """

    start: float
    rest: float
    restart: float
    down: float


class Way(NamedTuple):
    """Functions for the parts of a cluster's life."""

    start: Callable[[], object]
    restart: Callable[[], object]
    down: Callable[[], object]


def last_listening(namespace: str) -> float:
    """Return the time at which the last of the servers began to listen, in seconds since the epoch."""
    return max(listening(namespace, f"four-{job}-{index}") for job, tasks in TASKS.items() for index in range(tasks))


def listening(namespace: str, pod: str) -> float:
    """Return the time at which a pod's server began to listen."""
    log = call("kubectl", "--namespace", namespace, "logs", pod, "--timestamps")
    first = next(line for line in log.splitlines() if " tfk8s:" in line)
    moment, _, fraction = first.split()[0].rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(f"{moment}+00:00").timestamp() + float(f"0.{fraction[:6]}")


def ticks() -> tuple[int, int]:
    """Return the processors' time since boot, and the part of it without work of this machine (proc_stat(5))."""
    spent = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(spent), spent[3] + spent[4] + spent[7]  # idle, iowait, steal


def wait_until_idle() -> None:
    """Wait until the machine is idle, but not for ever."""
    for _ in range(IDLE_TIMEOUT):
        spent, idle = ticks()
        time.sleep(1)
        spent, idle = (now - before for now, before in zip(ticks(), (spent, idle), strict=True))
        if idle > (1 - MAX_IDLE_SHARE) * spent:
            return


def live(namespace: str, way: Way) -> Life:
    """Measure one life."""
    wait_until_idle()
    began = time.time()
    way.start()
    returned = time.time()
    listens = last_listening(namespace)
    restart = seconds(way.restart)
    return Life(listens - began, returned - listens, restart, seconds(way.down))


def by_tfk8s(namespace: str, folder: Path) -> Way:
    """Return tfk8s' way."""
    options = ("--namespace", namespace)
    return Way(
        functools.partial(tfk8s, "up", *options, folder / "four.yaml"),
        functools.partial(tfk8s, "restart", *options, "four", "worker/1"),
        functools.partial(tfk8s, "down", *options, "four"),
    )


def by_kubectl(namespace: str, folder: Path) -> Way:
    """Return kubectl's way, with the same objects."""
    objects = folder / "four.objects.yaml"
    objects.write_text(tfk8s("render", "--namespace", namespace, folder / "four.yaml"))
    kubectl = functools.partial(call, "kubectl", "--namespace", namespace)

    def wait() -> None:
        for job, tasks in TASKS.items():
            kubectl("wait", TIMEOUT, f"--for=jsonpath={{.status.readyReplicas}}={tasks}", f"statefulset/four-{job}")

    def start() -> None:
        kubectl("apply", "--server-side", "--field-manager", "tfk8s", "-f", objects)
        wait()

    def restart() -> None:
        kubectl("delete", "pod", "four-worker-1")
        kubectl("wait", TIMEOUT, "--for=create", "pod/four-worker-1")
        kubectl("wait", TIMEOUT, "--for=condition=Ready", "pod/four-worker-1")

    return Way(start, restart, functools.partial(kubectl, "delete", "--cascade=foreground", "-f", objects))


def submits(namespace: str, folder: Path) -> Iterator[Comparison]:
    """Measure a script in the cluster's warm pod, in which another script has ended.

    `submit` imports the official client of Kubernetes, as every command does that talks to an API server.
    """
    submit = (*TFK8S, "submit", "--namespace", namespace, "four", folder / "script.py")
    tfk8s("up", "--namespace", namespace, folder / "four.yaml")
    call(*submit)
    pod = ("kubectl", "--namespace", namespace, "run", "script", "--image", IMAGE, "--restart", "Never")
    ways = {
        "`submit`": submit,
        "`submit --fresh`": (*submit[:-2], "--fresh", *submit[-2:]),
        "`kubectl run --attach`": (*pod, "--attach", "--rm", "--command", "--", "python3", "-c", SCRIPT),
        "import of the official client": (sys.executable, "-c", "import kubernetes.config.kube_config"),
    }
    figures = take_turns({way: functools.partial(idle_seconds, words) for way, words in ways.items()}, TURNS)
    for other in list(ways)[1:]:
        yield compare("later `submit`", other, "s", figures["`submit`"], figures[other], Bound(highest=1.0, unit="s"))
    tfk8s("down", "--namespace", namespace, "four")


def records(namespace: str, folder: Path) -> Iterator[Comparison]:
    """Measure an `up` that changes nothing, of a cluster with a record in a shared history and of one with a limit."""
    (folder / "claim.yaml").write_text(CLAIM)
    call("kubectl", "--namespace", namespace, "apply", "-f", folder / "claim.yaml")
    ways = {}
    for name, more in (("recorded", "history: {claim: past, logs: true}\n"), ("limited", "")):
        path = folder / f"{name}.yaml"
        path.write_text(ONE.format(name=name) + more)
        up = (*TFK8S, "up", "--namespace", namespace, path)
        call(*up)
        ways[name] = functools.partial(idle_seconds, up)
    figures = take_turns(ways, 7)
    yield compare("`up` without a change, with a record", "with a limit", "s", figures["recorded"], figures["limited"])
    for name in ways:
        tfk8s("down", "--namespace", namespace, name)


def idle_seconds(words: Sequence[str | Path]) -> float:
    """Return the seconds that a command takes, once the machine is idle."""
    wait_until_idle()
    return seconds(functools.partial(call, *words))


@contextlib.contextmanager
def new_namespace(name: str) -> Iterator[str]:
    """Make a namespace; remove the namespace after use, and wait until the API server is done."""
    name = f"tfk8s-{name}-{int(time.time())}"
    call("kubectl", "create", "namespace", name)
    try:
        yield name
    finally:
        call("kubectl", "delete", "namespace", name, "--timeout=30m")


def has_kind() -> bool:
    """Return whether kubectl works in a context of kind."""
    if not shutil.which("kubectl"):
        return False
    done = subprocess.run(["kubectl", "config", "current-context"], capture_output=True, text=True, check=False)
    return done.stdout.startswith("kind-")


def comparisons() -> Iterator[Comparison | str]:
    """Measure lives in turn."""
    if not has_kind():
        yield "Not measured: there is no kubectl, or the kubeconfig's current context is not of kind."
        return
    with tempfile.TemporaryDirectory() as name, new_namespace("bench") as namespace:
        folder = Path(name)
        (folder / "four.yaml").write_text(FOUR)
        (folder / "script.py").write_text(SCRIPT)
        ways = {way: functools.partial(live, namespace, way(namespace, folder)) for way in (by_tfk8s, by_kubectl)}
        lives = take_turns(ways, TURNS)
        submitted = [*submits(namespace, folder), *records(namespace, folder)]
    for part, what, against, bound in (
        ("start", "`up` until the last of 4 servers listens", "`kubectl apply`", 3.5),
        ("rest", "from then until `up` returns", "`kubectl wait`", 0.5),
        ("restart", "`restart` of a task", "`kubectl delete pod`, `kubectl wait`", None),
        ("down", "`down`", "`kubectl delete`", None),
    ):
        limit = Bound(highest=bound, unit="s") if bound else None
        ours, theirs = ([getattr(life, part) for life in lives[way]] for way in ways)
        yield compare(what, against, "s", ours, theirs, limit)
    yield from submitted


if __name__ == "__main__":
    page.show(TITLE, comparisons())
