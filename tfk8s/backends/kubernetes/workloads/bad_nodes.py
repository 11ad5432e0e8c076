"""Nodes that may be at fault: the pods of a task fail there, or see no GPUs, while pods of its job run on others.

A pod that Kubernetes or a user takes away is no fault of its node: a drain, an eviction, a preemption, a deletion.
Neither is a program that ends by itself, nor a container that uses more memory than its limit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from tfk8s.backends.kubernetes.api_server import errors
from tfk8s.backends.kubernetes.pods import containers, disruptions, pod_status
from tfk8s.backends.kubernetes.workloads import task_pods
from tfk8s.core.programs import read_end
from tfk8s.render import manifests, placement
from tfk8s.render.pods import Object

_LACKS_GPUS = "tfk8s.dev/lacks-gpus"  # an annotation: the restarts of the container in which TensorFlow saw too few
_REFUSED = "UnexpectedAdmissionError"  # of a pod whose GPU the node's device plugin does not give
_CRASHES = 2  # of a server: one crash may be that of its graph
_NO_FAULTS = (0, 143)  # the server was told to end
_WAITING = ("CreateContainerError", "RunContainerError")
_OF_RUNTIME = ("Error: failed to create ", "Error: failed to start ")  # the begin of kubelet's words on containers
_IN_SET = "statefulset.kubernetes.io/pod-name"  # a label of a StatefulSet's pods
_NEW = 60.0  # seconds from the begin of a cluster on, in which its first pods are created
_EVENTS_KEPT = 3600.0  # seconds for which an API server keeps events
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Fault(NamedTuple):
    """A failure of a task.

    Attributes:
        node: the name of the node where it happened.
        reason: the failure, after the task's name.
    """

    node: str
    reason: str


def find(pods: Iterable[Object], events: Sequence[Object] = ()) -> dict[str, Fault]:
    """Return the nodes that may be at fault, by the task's `task_pods.stable_name`.

    A node is not at fault if another pod of the job runs there, or if none runs anywhere.

    Args:
        pods: the pods of tasks, all of a job.
        events: those of the namespace, of kubelet, which outlive the pods of StatefulSets.
    """
    pods = sorted((pod for pod in pods if "nodeName" in pod["spec"]), key=_age)
    running: dict[str, set[str]] = {}
    for pod in filter(_runs, pods):
        running.setdefault(_job(pod), set()).add(pod["spec"]["nodeName"])
    found = {}
    for name, group in groupby(sorted(pods, key=task_pods.stable_name), task_pods.stable_name):
        *earlier, last = group  # by age, since `sorted` is stable
        if _lacks_gpus(last):
            found[name] = Fault(last["spec"]["nodeName"], "sees no GPUs")
            continue
        good, avoided = running.get(_job(last), set()), placement.avoided(last["spec"])
        of_pods = (Fault(pod["spec"]["nodeName"], _fault(pod)) for pod in (last, *reversed(earlier)))
        for fault in (*of_pods, *_of_events(last, events)):
            if fault.reason and good and fault.node not in {*good, *avoided}:
                found[name] = fault
                break
    return found


def read(
    pods: Sequence[Object], workloads: Iterable[Object], events: Callable[[], Sequence[Object]]
) -> dict[str, Fault]:  # fmt: skip
    """Return the result of `find`, with the events of the namespace if a StatefulSet has lately created a pod again.

    Args:
        pods: the pods of tasks.
        workloads: the StatefulSets and Jobs of the same tasks.
        events: returns the events.
    """
    begin = time.time() - _EVENTS_KEPT
    if latest := max((pod_status.seconds(_age(pod)) for pod in pods if _IN_SET in _labels(pod)), default=0.0):
        begin = max(begin, _NEW + min(pod_status.seconds(_age(item)) for item in workloads))
    if latest > begin:
        with errors.suppress(403):
            return find(pods, events())
    return find(pods)


def lack_of_gpus(pod: Object) -> Object:
    """Return the annotations of a pod in whose container TensorFlow does not see all GPUs, until it restarts."""
    return {_LACKS_GPUS: _restarts(pod)}


def _lacks_gpus(pod: Object) -> bool:
    return bool(pod["metadata"].get("annotations", {}).get(_LACKS_GPUS) == _restarts(pod))


def _restarts(pod: Object) -> str:
    return str(sum(item["restartCount"] for item in containers.statuses(pod)))


def _labels(pod: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = pod["metadata"].get("labels", {})
    return labels


def _job(pod: Object) -> str:
    return _labels(pod).get(manifests.COMPONENT, "")


def _age(item: Object) -> str:
    return str(item["metadata"]["creationTimestamp"])


def _runs(pod: Object) -> bool:
    """Return whether a pod has what it needs of its node."""
    phase = pod["status"].get("phase")
    if "deletionTimestamp" in pod["metadata"] or phase == "Failed" or _lacks_gpus(pod):
        return False
    if pod_status.is_node_silent(pod):
        return False
    return phase == "Succeeded" or any(item.get("ready") for item in containers.statuses(pod))


def _fault(pod: Object) -> str:
    """Return the failure of a pod that may be its node's fault, after the task's name; "" without one."""
    status = pod["status"]
    if "deletionTimestamp" in pod["metadata"] or disruptions.disruption("", pod):
        return ""
    if (status.get("phase"), status.get("reason")) == ("Failed", _REFUSED):
        return f"was refused ({_REFUSED})"
    own = next(iter(containers.statuses(pod)), None)
    if own is None or "running" in own["state"]:
        return ""
    if (waiting := own["state"].get("waiting", {}).get("reason", "")) in _WAITING:
        return f"could not start ({waiting})"
    end = containers.last_end(pod)
    if end is None or end.get("exitCode") in _NO_FAULTS or end.get("reason") == "OOMKilled":
        return ""
    if read_end(end.get("message", "")) or (status.get("phase") != "Failed" and own["restartCount"] < _CRASHES):
        return ""
    return f"ended with exit code {end.get('exitCode')}"


def _of_events(pod: Object, events: Iterable[Object]) -> Iterator[Fault]:
    """Yield the failures of earlier pods of the same name, the last first."""
    for event in sorted(events, key=_age, reverse=True):
        subject = event.get("involvedObject", {})
        is_earlier = subject.get("uid") != pod["metadata"]["uid"] and _age(event) <= _age(pod)
        if not _NODE.fullmatch(host := str(event.get("source", {}).get("host", ""))):
            continue  # anyone may write events
        if is_earlier and (subject.get("kind"), subject.get("name")) == ("Pod", pod["metadata"]["name"]):
            reason, message = str(event.get("reason")), str(event.get("message"))
            if reason == _REFUSED:
                yield Fault(host, f"was refused ({_REFUSED})")
            elif reason == "BackOff" and message.startswith("Back-off restarting failed container"):
                yield Fault(host, "ended again and again")
            elif reason == "FailedCreatePodSandBox" or (reason == "Failed" and message.startswith(_OF_RUNTIME)):
                yield Fault(host, f"could not start ({reason})")
