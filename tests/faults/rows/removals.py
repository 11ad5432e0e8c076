"""Rows about pods that are deleted, evicted, drained, preempted or removed by a taint."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from harness.command import PATIENCE, Ended
from harness.kube import NOW, KubeEnvironment, pod_of
from harness.row import NOTHING, VERDICT, Row
from kube_api import MERGE
from rows.scripts import COORDINATING, COUNTED

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.core.quantity import Quantity
from tfk8s.render.pods import Object

Fault = Callable[[KubeEnvironment], None]

PREEMPTED = "preempted by a pod of higher priority"
SCRIPT_LOST = "the script was lost with its pod:"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def lost(moment: str, fault: Fault) -> Callable[[KubeEnvironment], Ended]:
    """Inject a fault at a moment of a script."""

    def run(environment: KubeEnvironment) -> Ended:
        script = environment.steps(moment)
        script.now()
        fault(environment)
        if moment == "after":  # a server may go on for a moment, and the next step with it
            script.until_says("was lost")
        script.go_on()
        ended = script.end(PATIENCE)
        environment.undo()
        return ended

    return run


def delete(task: str, **options: int) -> Fault:
    return lambda environment: environment.client.send(
        "DELETE", paths.pod(environment.namespace, pod_of(task)), options
    )


def priority(environment: KubeEnvironment, name: str, value: int) -> str:
    """Make a PriorityClass until the end of the row; return its name."""
    name = f"{environment.namespace}-{name}"
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    environment.client.send("POST", _CLASSES, body=body)
    environment.at_end(lambda: environment.client.send("DELETE", f"{_CLASSES}/{name}"))
    return name


def crowd(environment: KubeEnvironment, priority: str, memory: int) -> None:
    """Make a pod that asks for `memory` bytes more than are free on the only node, until the end of the row."""
    (node,) = environment.client.get("/api/v1/nodes")["items"]
    query = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    asked = [
        one["resources"].get("requests", {}).get("memory", "0")
        for pod in environment.client.get("/api/v1/pods", query)["items"]
        for one in pod["spec"]["containers"]
    ]
    free = Quantity.parse(node["status"]["allocatable"]["memory"]).value - sum(
        Quantity.parse(one).value for one in asked
    )
    (image,) = {pod["spec"]["containers"][0]["image"] for pod in environment.pods().values()}
    requests = {"requests": {"memory": str(int(free) + memory)}}
    container = {"name": "main", "image": image, "command": ["sleep", "600"], "resources": requests}
    spec = {"priorityClassName": priority, "terminationGracePeriodSeconds": 0, "containers": [container]}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "crowd"}, "spec": spec}
    environment.client.send("POST", paths.collection("Pod", environment.namespace), body=made)
    environment.at_end(lambda: environment.client.send("DELETE", paths.pod(environment.namespace, "crowd"), NOW))


def taint(environment: KubeEnvironment) -> None:
    """Evict all pods from the nodes of the cluster by a taint, until the end of the row."""
    taint = {"key": "tfk8s.dev/faults", "effect": "NoExecute"}
    for name in {pod["spec"]["nodeName"] for pod in environment.pods().values()}:
        path = f"/api/v1/nodes/{name}"
        before = environment.client.get(path)["spec"].get("taints")
        environment.at_end(functools.partial(_set_taints, environment, path, before))
        _set_taints(environment, path, [*(before or ()), taint])


def _set_taints(environment: KubeEnvironment, path: str, taints: list[Object] | None) -> None:
    environment.client.send("PATCH", path, body={"spec": {"taints": taints}}, content_type=MERGE)


def evict(pod: str) -> Fault:
    def fault(environment: KubeEnvironment) -> None:
        metadata = {"name": pod, "namespace": environment.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        environment.client.send("POST", paths.pod(environment.namespace, pod, "eviction"), body=body)

    return fault


def evict_script(environment: KubeEnvironment) -> None:
    evict(environment.script_pod())(environment)


def drain(environment: KubeEnvironment) -> None:
    """Drain the node of a task whose disruption budget allows that."""
    environment.cordon()
    evict(pod_of("worker/1"))(environment)


def preempted(environment: KubeEnvironment) -> Ended:
    """Preempt both workers, which have the lowest priority, by a new pod."""
    environment.remove()
    low, less_low = priority(environment, "low", -1000), priority(environment, "less-low", -500)
    environment.file("job.yaml", environment.text.replace("worker: {", f"worker: {{priority_class: {low}, "))
    environment.at_end(lambda: environment.file("job.yaml", environment.text))
    script = environment.steps("during")
    script.now()
    crowd(environment, less_low, 1900 << 20)  # the workers ask for a gigabyte each
    ended = script.end(PATIENCE)
    environment.remove()
    return ended


def coordinator_loses_a_pod(environment: KubeEnvironment) -> Ended:
    """Evict the pod of a worker of a ParameterServerStrategy, which goes on without the worker."""
    script = environment.submit("coordinator.py")
    script.until_says("schedules")
    script.now()
    evict(pod_of("worker/1"))(environment)
    ended = script.end(2 * PATIENCE)
    assert COUNTED.search(ended.out), ended
    return ended


def coordinator_loses_a_network(environment: KubeEnvironment) -> Ended:
    """Drop the packets of a worker of a ParameterServerStrategy, which goes on without the worker."""
    script = environment.submit("coordinator.py")
    process = environment.process("worker/1")
    environment.at_end(lambda: delete("worker/1", **NOW)(environment))
    script.until_says("schedules")
    script.now()
    process.cut_network()
    ended = script.end(2 * PATIENCE)
    assert COUNTED.search(ended.out), ended
    return ended


def script_taken_away(fault: Fault) -> Callable[[KubeEnvironment], Ended]:
    """Take the pod of a script away; the script runs again."""

    def run(environment: KubeEnvironment) -> Ended:
        script = environment.submit("nap.py", 3, flags=("--retries", 1))
        script.until_says("naps")
        script.now()
        fault(environment)
        script.until_says("it runs again")
        environment.undo()
        return script.end(2 * PATIENCE)

    return run


def files_taken_away(environment: KubeEnvironment) -> Ended:
    """Evict the pod of a script whose files are to be copied at its end."""
    script = environment.submit("results.py", 1, "wait", flags=("--get", f"results:{environment.folder}/results"))
    script.until_says("leaves files")
    script.now()
    evict_script(environment)
    return script.end(PATIENCE)


def rows() -> Iterator[Row]:
    yield Row(
        fault="pod of worker/1 evicted", when="in a step", run=lost("during", evict(pod_of("worker/1"))), code=3,
        words=("worker/1: evicted from its node",), thorough=True,
    )  # fmt: skip
    yield Row(
        fault="pod of worker/1 evicted", when=COORDINATING, run=coordinator_loses_a_pod,
        words=("worker/1 was lost",), limit=6 * VERDICT,
    )  # fmt: skip
    yield Row(
        fault="pod of the script evicted", when="in `submit --retries 1`", run=script_taken_away(evict_script),
        words=(f"{SCRIPT_LOST} evicted from its node", "(retry 1 of 1)"), limit=3 * VERDICT,
    )  # fmt: skip


def files() -> Iterator[Row]:
    yield Row(
        fault="pod of the script evicted", when="in `submit --get`", run=files_taken_away, code=1,
        words=("the script's files were not copied", f"{SCRIPT_LOST} evicted from its node"),
    )  # fmt: skip


def on_kind() -> Iterator[Row]:
    yield Row(
        fault="network of worker/1 cut", when=COORDINATING, run=coordinator_loses_a_network, thorough=True,
        words=("worker/1 was lost", "worker/1 is silent for 10 s: the other workers run its functions"),
        limit=8 * VERDICT,
    )  # fmt: skip
    yield Row(
        fault="node drained, so that worker/1 has no place", when="in a step", run=lost("during", drain), code=3,
        words=("worker/1: evicted from its node",),
    )  # fmt: skip
    yield Row(
        fault="two workers preempted", when="in a step", run=preempted, code=3, thorough=True, left=NOTHING,
        words=(f"worker/0: {PREEMPTED}", f"worker/1: {PREEMPTED}"),
    )  # fmt: skip
    yield Row(
        fault="node tainted, as one that is not ready", when="in `submit --retries 1`", thorough=True,
        run=script_taken_away(taint), limit=6 * VERDICT,
        words=(f"{SCRIPT_LOST} evicted from its node", "not ready or was tainted"),
    )  # fmt: skip
