"""Measures clusters of hundreds and thousands of tasks on simulated nodes, beside TFJobs of the same size.

    tests/tfjob/operator.sh install test FOLDER      # the training-operator, from its Go module
    python bench/scale.py [TASKS ...]                # default: 100 1000

Needs kubectl, Go, and kwok of https://kwok.sigs.k8s.io, which plays the kubelets of simulated nodes. The benchmark runs
in new namespaces of the kubeconfig's current context, and removes the namespaces and the nodes. A pod is ready at once,
and no container runs. So the figures are those of tfk8s, of the API server and of its controllers. Each command goes
through a relay that counts its requests and bytes. The memory is the largest resident set of the command's process
(getrusage(2)).

Three ways make the same number of pods, one after the other and once each: `tfk8s up`; one plain StatefulSet; and a
TFJob, if its operator runs, which also makes a Service a pod. The StatefulSet shows Kubernetes' own limit: its
controllers send 20 requests a second (kube-controller-manager, --kube-api-qps). The times are those until the API
server has all objects.

Remove the operator before a run of 10,000 tasks. Each pod of a TFJob has the addresses of all replicas in TF_CONFIG,
574 kB here. After 1,090 pods, etcd refused more ("database space exceeded"): its quota is 2 GiB by default
(etcd.io/docs, "System limits").
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kube import new_namespace
from measure import TFK8S, seconds

from tfk8s import polling

SIZES = (100, 1000)
CLUSTER = """\
apiVersion: tfk8s.dev/v1
name: large
image: tf:1
jobs:
  chief: {{{pods}}}
  ps: {{tasks: {ps}, {pods}}}
  worker: {{tasks: {workers}, {pods}}}
"""
PODS_OF_A_NODE = 100
KWOK = "sigs.k8s.io/kwok@v0.8.0"
STAGES = ("node/fast/node-initialize", "pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete")
SIMULATED = {"nodeSelector": {"type": "kwok"}, "tolerations": [{"key": "type", "operator": "Exists"}]}
PODS = "node_selector: {type: kwok}, tolerations: [{key: type, operator: Exists}]"
READ = re.compile(rb"(GET|HEAD) /")
WRITE = re.compile(rb"(POST|PUT|PATCH|DELETE) /")
MADE_TIMEOUT_PER_TASK = 1.0  # seconds


# ---- a relay that counts --------------------------------------------------------------------------------------------


class Traffic:
    """The requests and bytes that went through a relay.

    Attributes:
        reads, writes: numbers of requests.
        sent, received: bytes to and from the API server.
    """

    def __init__(self) -> None:
        self.reads = self.writes = self.sent = self.received = 0

    def count(self, data: bytes, sends: bool) -> None:
        """Count a piece of a connection. A client sends the head of a request as a piece of its own."""
        if not sends:
            self.received += len(data)
            return
        self.sent += len(data)
        self.reads += bool(READ.match(data))
        self.writes += bool(WRITE.match(data))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, traffic: Traffic, sends: bool) -> None:
    """Copy one direction of a connection until its end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            traffic.count(data, sends)
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def relay(port: int, traffic: Traffic) -> Iterator[int]:
    """Relay connections to a port of this machine, and count; yield the relay's own port."""
    loop, ready, ports = asyncio.new_event_loop(), threading.Event(), []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, forth, traffic, True), copy(back, writer, traffic, False))

    async def serve() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    async def end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    loop.create_task(serve())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ready.wait()
    yield ports[0]
    asyncio.run_coroutine_threadsafe(end(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@contextlib.contextmanager
def kubectl_proxy() -> Iterator[int]:
    """Run `kubectl proxy`, which speaks plain HTTP; yield its port."""
    proxy = subprocess.Popen(["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        yield int(proxy.stdout.readline().rsplit(":", 1)[1])
    finally:
        proxy.terminate()
        proxy.wait()


class Cost(NamedTuple):
    """The cost of one command: seconds, MB, requests and bytes."""

    seconds: float
    memory: float
    reads: int
    writes: int
    sent: int
    received: int

    def __str__(self) -> str:
        return (
            f"{self.seconds:7.2f} s {self.memory:5.0f} MB {self.reads:7} reads {self.writes:5} writes "
            f"{self.sent / 1e3:9.1f} kB sent {self.received / 1e3:10.1f} kB received"
        )


class Commands:
    """tfk8s in one namespace, through a relay."""

    def __init__(self, namespace: str, folder: Path, port: int) -> None:
        self._namespace, self._folder, self._port = namespace, folder, port

    def run(self, *arguments: str) -> Cost:
        """Run a command of tfk8s, and return its cost."""
        traffic = Traffic()
        with relay(self._port, traffic) as port:
            config = {
                "apiVersion": "v1", "kind": "Config", "current-context": "relay",
                "clusters": [{"name": "relay", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "contexts": [{"name": "relay", "context": {"cluster": "relay", "user": "relay"}}],
                "users": [{"name": "relay", "user": {}}],
            }  # fmt: skip
            (self._folder / "kubeconfig").write_text(json.dumps(config))
            environment = {**os.environ, "KUBECONFIG": str(self._folder / "kubeconfig")}
            command = [*TFK8S, *arguments, "--namespace", self._namespace]
            start = time.perf_counter()
            with (self._folder / "stderr").open("w") as errors:
                process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            last = (self._folder / "stderr").read_text()[-2000:]
            raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}\n{last}")
        return Cost(seconds, usage.ru_maxrss / 1e3, traffic.reads, traffic.writes, traffic.sent, traffic.received)


# ---- the three ways ------------------------------------------------------------------------------------------------


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Run kubectl, and return its output."""
    done = subprocess.run(["kubectl", *arguments], input=stdin, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


@contextlib.contextmanager
def simulated_nodes(number: int, folder: Path) -> Iterator[None]:
    """Run kwok with a number of nodes; remove the nodes after use."""
    size = {"cpu": "96", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": str(2 * PODS_OF_A_NODE)}
    metadata = {"annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {"type": "kwok"}}
    node = {
        "apiVersion": "v1", "kind": "Node",
        "spec": {"taints": [{"key": "type", "value": "kwok", "effect": "NoSchedule"}]},
        "status": {"capacity": size, "allocatable": size},
    }  # fmt: skip
    nodes = [{**node, "metadata": {**metadata, "name": f"kwok-{index}"}} for index in range(number)]
    (folder / "kwok.kubeconfig").write_text(kubectl("config", "view", "--raw", "--minify"))
    select = "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"
    lease = "--node-lease-duration-seconds=40"  # without leases, Kubernetes takes the nodes for lost after 50 s
    module = json.loads(subprocess.check_output(["go", "mod", "download", "-json", KWOK]))["Dir"]
    stages = [word for stage in STAGES for word in ("--config", f"{module}/kustomize/stage/{stage}.yaml")]
    kubeconfig = ["--kubeconfig", str(folder / "kwok.kubeconfig")]
    command = ["kwok", *kubeconfig, "--manage-all-nodes=false", select, lease, *stages]
    with (folder / "kwok.log").open("w") as log:
        kwok = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        kubectl(
            "apply", "--server-side", "-f", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": nodes})
        )
        kubectl("wait", "--for=condition=Ready", "--timeout=60s", "nodes", "--selector", "type=kwok")
        yield
    finally:
        kubectl("delete", "nodes", "--selector", "type=kwok")
        kwok.terminate()
        kwok.wait()


def count(namespace: str, kind: str) -> int:
    """Return the number of a namespace's objects of a kind. The answer has one object, and how many more there are."""
    answer = json.loads(kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/{kind}?limit=1"))
    return len(answer["items"]) + answer["metadata"].get("remainingItemCount", 0)


def wait_for(namespace: str, kind: str, number: int, tasks: int) -> None:
    """Wait until a namespace has a number of objects of a kind.

    Raises:
        WaitTimeout: the objects do not come in time.
    """
    timeout = max(60, tasks * MADE_TIMEOUT_PER_TASK)
    polling.wait_until(lambda: count(namespace, kind) == number, f"{number} {kind} to exist", timeout)


def made(namespace: str, tasks: int, apply: Callable[[], object], *kinds: str) -> float:
    """Apply, and return the seconds until the API server has as many objects of each kind as tasks."""

    def make() -> None:
        apply()
        for kind in kinds:
            wait_for(namespace, kind, tasks, tasks)

    return seconds(make)


def by_tfk8s(tasks: int, folder: Path, port: int) -> float:
    """Run a cluster's life; print what each command costs; return the seconds until all pods are made."""
    job_file, ps = folder / "cluster.yaml", tasks // 10
    job_file.write_text(CLUSTER.format(pods=PODS, ps=ps, workers=tasks - ps - 1))
    with new_namespace("scale-tfk8s") as namespace:
        commands = Commands(namespace, folder, port)

        def run(what: str, *arguments: str) -> None:
            print(f"  {what:24}{commands.run(*arguments)}", flush=True)

        up = ("up", "--no-wait", str(job_file))
        seconds = made(namespace, tasks, lambda: run("up --no-wait", *up), "pods")
        run("up --no-wait, again", *up)
        run("status", "status", "large")
        run("scale, one worker more", "scale", "--no-wait", "large", f"worker={tasks - ps}")
        run("down", "down", "large")
    return seconds


def by_tfjob(tasks: int) -> float:
    """Return the seconds until the operator has made all pods and Services of a TFJob."""
    container = {"name": "tensorflow", "image": "tf:1", "command": ["sleep", "infinity"]}
    template = {"spec": {**SIMULATED, "containers": [container]}}
    sizes = {"Chief": 1, "PS": tasks // 10, "Worker": tasks - tasks // 10 - 1}
    replicas = {kind: {"replicas": size, "template": template} for kind, size in sizes.items()}
    metadata = {"name": "large"}
    tfjob = json.dumps(
        {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": {"tfReplicaSpecs": replicas}}
    )
    with new_namespace("scale-tfjob") as namespace:
        apply = ("apply", "--server-side", "--namespace", namespace, "-f", "-")
        return made(namespace, tasks, lambda: kubectl(*apply, stdin=tfjob), "pods", "services")


def by_stateful_set(tasks: int) -> float:
    """Return the seconds until Kubernetes has made all pods of one StatefulSet."""
    labels = {"app": "large"}
    container = {"name": "main", "image": "tf:1", "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}}}
    stateful_set = {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "large"},
        "spec": {
            "replicas": tasks, "podManagementPolicy": "Parallel", "serviceName": "large",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {**SIMULATED, "containers": [container]}},
        },
    }  # fmt: skip
    with new_namespace("scale-plain") as namespace:
        apply = ("apply", "--server-side", "--namespace", namespace, "-f", "-")
        return made(namespace, tasks, lambda: kubectl(*apply, stdin=json.dumps(stateful_set)), "pods")


def has_operator() -> bool:
    """Return whether the API server knows TFJobs."""
    done = subprocess.run(["kubectl", "get", "crd", "tfjobs.kubeflow.org"], capture_output=True, check=False)
    return done.returncode == 0


def main() -> None:
    """Measure each size, and print the results."""
    operator = has_operator()
    sizes = [int(size) for size in sys.argv[1:]] or SIZES
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfk8s-scale-")))
        port = stack.enter_context(kubectl_proxy())
        stack.enter_context(simulated_nodes(max(sizes) // PODS_OF_A_NODE + 1, folder))
        for tasks in sizes:
            print(f"{tasks} tasks", flush=True)
            ways = {"tfk8s up": by_tfk8s(tasks, folder, port), "a StatefulSet": by_stateful_set(tasks)}
            if operator:
                ways["a TFJob"] = by_tfjob(tasks)
            for name, seconds in ways.items():
                print(f"  all pods by {name:16}{seconds:8.1f} s, {seconds / ways['tfk8s up']:5.2f} times `up`")


if __name__ == "__main__":
    main()
