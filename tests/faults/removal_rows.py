"""Rows about pods that somebody or something takes away: deleted, evicted, drained, preempted, tainted nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from commands import PATIENCE, Ended
from kube_api import MERGE
from kube_place import NOW, Kube, pod_of
from rows import NOTHING, VERDICT, Row

from tfk8s.backends.kubernetes import paths
from tfk8s.core.quantity import Quantity
from tfk8s.render.pods import Object

Fault = Callable[[Kube], None]

PREEMPTED = "preempted by a pod of higher priority"
SCRIPT_LOST = "the script was lost with its pod:"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def lost(moment: str, fault: Fault) -> Callable[[Kube], Ended]:
    """A fault at some moment of a script."""

    def act(place: Kube) -> Ended:
        script = place.steps(moment)
        script.now()
        fault(place)
        if moment == "after":  # a server may go on for a moment, and the next step with it
            script.until_says("was lost")
        script.go_on()
        ended = script.end(PATIENCE)
        place.undo()
        return ended

    return act


def delete(task: str, **options: int) -> Fault:
    return lambda place: place.client.send("DELETE", paths.pod(place.namespace, pod_of(task)), options)


def priority(place: Kube, name: str, value: int) -> str:
    """Make a PriorityClass, until the row is over; return its name."""
    name = f"{place.namespace}-{name}"
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    place.client.send("POST", _CLASSES, body=body)
    place.at_end(lambda: place.client.send("DELETE", f"{_CLASSES}/{name}"))
    return name


def crowd(place: Kube, priority: str, memory: int) -> None:
    """Make a pod, until the row is over, that asks for so many bytes more than are free on the only node."""
    (node,) = place.client.get("/api/v1/nodes")["items"]
    query = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
    asked = [
        one["resources"].get("requests", {}).get("memory", "0")
        for pod in place.client.get("/api/v1/pods", query)["items"]
        for one in pod["spec"]["containers"]
    ]
    free = Quantity.parse(node["status"]["allocatable"]["memory"]).value - sum(
        Quantity.parse(one).value for one in asked
    )
    (image,) = {pod["spec"]["containers"][0]["image"] for pod in place.pods().values()}
    requests = {"requests": {"memory": str(int(free) + memory)}}
    container = {"name": "main", "image": image, "command": ["sleep", "600"], "resources": requests}
    spec = {"priorityClassName": priority, "terminationGracePeriodSeconds": 0, "containers": [container]}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "crowd"}, "spec": spec}
    place.client.send("POST", paths.collection("Pod", place.namespace), body=made)
    place.at_end(lambda: place.client.send("DELETE", paths.pod(place.namespace, "crowd"), NOW))


def taint(place: Kube) -> None:
    """Have all pods go from the nodes that ours are on, as from one that is not ready, until the row is over."""
    taint = {"key": "tfk8s.dev/faults", "effect": "NoExecute"}
    for name in {pod["spec"]["nodeName"] for pod in place.pods().values()}:
        path = f"/api/v1/nodes/{name}"
        before = place.client.get(path)["spec"].get("taints")
        place.at_end(functools.partial(_set_taints, place, path, before))
        _set_taints(place, path, [*(before or ()), taint])


def _set_taints(place: Kube, path: str, taints: list[Object] | None) -> None:
    place.client.send("PATCH", path, body={"spec": {"taints": taints}}, content_type=MERGE)


def evict(pod: str) -> Fault:
    def fault(place: Kube) -> None:
        metadata = {"name": pod, "namespace": place.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        place.client.send("POST", paths.pod(place.namespace, pod, "eviction"), body=body)

    return fault


def evict_script(place: Kube) -> None:
    evict(place.script_pod())(place)


def drain(place: Kube) -> None:
    """Drain the node of a task that its disruption budget lets go."""
    place.cordon()
    evict(pod_of("worker/1"))(place)


def preempted(place: Kube) -> Ended:
    """Both workers, whose priority is lower than any other pod's, have to go for one that comes."""
    place.remove()
    low, less_low = priority(place, "low", -1000), priority(place, "less-low", -500)
    place.file("job.yaml", place.text.replace("worker: {", f"worker: {{priority: {low}, "))
    place.at_end(lambda: place.file("job.yaml", place.text))
    script = place.steps("during")
    script.now()
    crowd(place, less_low, 1900 << 20)  # the workers ask for a gigabyte each
    ended = script.end(PATIENCE)
    place.remove()
    return ended


def script_taken_away(fault: Fault) -> Callable[[Kube], Ended]:
    """The pod of a script is taken away, and the script runs again."""

    def act(place: Kube) -> Ended:
        script = place.submit("nap.py", 3, flags=("--retries", 1))
        script.until_says("naps")
        script.now()
        fault(place)
        script.until_says("it runs again")
        place.undo()
        return script.end(2 * PATIENCE)

    return act


def rows() -> Iterator[Row]:
    yield Row(
        fault="pod of worker/1 evicted", when="in a step", act=lost("during", evict(pod_of("worker/1"))), code=3,
        words=("worker/1: evicted from its node",), thorough=True,
    )  # fmt: skip
    yield Row(
        fault="pod of the script evicted", when="in `submit --retries 1`", act=script_taken_away(evict_script),
        words=(f"{SCRIPT_LOST} evicted from its node", "number 1 of at most 1"), limit=3 * VERDICT,
    )  # fmt: skip


def on_kind() -> Iterator[Row]:
    yield Row(
        fault="node drained, so that worker/1 has no place", when="in a step", act=lost("during", drain), code=3,
        words=("worker/1: evicted from its node",),
    )  # fmt: skip
    yield Row(
        fault="two workers preempted", when="in a step", act=preempted, code=3, thorough=True, left=NOTHING,
        words=(f"worker/0: {PREEMPTED}", f"worker/1: {PREEMPTED}"),
    )  # fmt: skip
    yield Row(
        fault="node tainted, as one that is not ready", when="in `submit --retries 1`", thorough=True,
        act=script_taken_away(taint), limit=6 * VERDICT,
        words=(f"{SCRIPT_LOST} evicted from its node", "not ready or was tainted"),
    )  # fmt: skip
