"""The phase of a task from its pod's status, and the reason in words, with the field of the job file to change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from tfk8s.backends.kubernetes.pods import admission, containers, image_pull, queues
from tfk8s.backends.kubernetes.pods.disruptions import DELETED, FAILED, why_removed
from tfk8s.backends.kubernetes.pods.pod_events import NodeEvent, PodEvents
from tfk8s.backends.kubernetes.pods.total_requests import remedy
from tfk8s.core.job_file.gangs import FIELD
from tfk8s.core.status import Phase
from tfk8s.render import placement
from tfk8s.render.pods import Object

PhaseAndReason = tuple[Phase, str]
GANG_IS_INCOMPLETE = "it waits until all pods of its gang are there"
ON_DELETE = "OnDelete"  # a strategy of StatefulSets

_PENDING: PhaseAndReason = (Phase.PENDING, "")
_SHORT = re.compile(r"Insufficient ([a-z0-9./-]*[a-z0-9])")
# `PlacementFeasible` in pkg/scheduler/framework/plugins/gangscheduling of Kubernetes 1.37.
_OF_GANG = re.compile(r"minCount \(\d+\)[^:]*: \d+ scheduled, \d+ remaining")
_NO_REASON = re.compile(r"Error: \w+")  # repeats the container's state, such as ErrImagePull
_KILLED = 137
_SUBPATHS = "/volume-subpaths/"  # kubelet's folder for files of volumes


def phase_and_reason(
    job: str, pod: Object | None, events: PodEvents, room: str = "", fields: str = ""
) -> PhaseAndReason:
    """Return a task's phase and the reason for it.

    Args:
        job: the job's name in the job file.
        pod: from the API server; None before it exists.
        events: of the pod, else of its StatefulSet.
        room: the advice if the namespace allows less; default: change what the job asks for.
        fields: the key of the job file with the resources of the pod; default: the job's.
    """
    if pod is None:
        return admission.phase_and_reason(job, events.warnings[-1], room) if events.warnings else _PENDING
    fields = fields or f"jobs.{job}"
    status = pod["status"]
    removed = why_removed(job, pod)
    if "deletionTimestamp" in pod["metadata"]:
        return Phase.PENDING, "its previous pod is terminating" + ("" if removed == DELETED else f": {removed}")
    if status.get("phase") == "Failed":
        end = containers.last_end(pod)
        return Phase.FAILED, removed or (why_ended(job, pod, end) if end else FAILED)
    if is_unscheduled(pod):
        return Phase.PENDING, scheduling_gate(pod, events.queue) or _without_node(job, pod, events.node, fields)
    own = containers.statuses(pod)
    if not own:
        return Phase.PENDING, GANG_IS_INCOMPLETE if _waits_for_gang(pod) else ""
    if is_node_silent(pod):
        node = pod["spec"].get("nodeName")
        return Phase.FAILED, f"its node {node} does not answer: `kubectl describe node {node}` shows since when"
    phase, reason = _container(job, pod, own[0], events.warnings)
    return phase, image_pull.describe(pod, events.pull) or reason or containers.why_others_wait(job, pod)


def is_unscheduled(pod: Object) -> bool:
    """Return whether the scheduler has found no node for a pod, or may not look for one yet."""
    scheduled = condition(pod, "PodScheduled")
    return scheduled is not None and scheduled["status"] != "True"


def _waits_for_gang(pod: Object) -> bool:
    """Return whether the scheduler has not looked for a node yet, since its gang has too few pods."""
    return FIELD in pod["spec"] and "nodeName" not in pod["spec"] and condition(pod, "PodScheduled") is None


def waits_for_node(pod: Object | None, events: PodEvents) -> bool:
    """Return whether a node is being started for a pod."""
    is_starting = events.node is not None and events.node.is_starting
    return is_starting and pod is not None and is_unscheduled(pod) and not pod["spec"].get("schedulingGates")


def is_node_silent(pod: Object) -> bool:
    """Return whether a pod is unready while its containers were ready at last: its node does not report."""
    conditions = tuple((condition(pod, kind) or {}).get("status") for kind in ("Ready", "ContainersReady"))
    return conditions == ("False", "True") and not pod["spec"].get("readinessGates")


def _container(job: str, pod: Object, container: Object, warnings: Sequence[str]) -> PhaseAndReason:
    state = container["state"]
    ended = container.get("lastState", {}).get("terminated")
    if "running" in state:
        failed = ended and ended.get("exitCode")
        return (Phase.READY if container["ready"] else Phase.STARTING), why_ended(job, pod, ended) if failed else ""
    if "terminated" in state:
        return _phase_of(state["terminated"]), why_ended(job, pod, state["terminated"])
    waiting = state.get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason == "CrashLoopBackOff" and ended:
        return _phase_of(ended), why_ended(job, pod, ended)
    if "Image" in reason:
        return _image(job, container["image"], reason, message)
    if reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
        return Phase.PENDING, admission.missing_variable(job, message) or f"its container can't be created: {message}"
    warning = next((text for text in reversed(warnings) if not _NO_REASON.fullmatch(text)), "")
    if "Failed to pull image" in warning:
        return Phase.PENDING, _image(job, container["image"], "", warning)[1]
    is_variable = warning.startswith("Error: ")  # kubelet can't create the container
    find = admission.missing_variable if is_variable else admission.missing
    return Phase.PENDING, find(job, warning) or warning


def _phase_of(end: Object) -> Phase:
    """Return the phase of a task whose container ended. A server that had to end, or never ran, has not failed."""
    return Phase.FAILED if end.get("exitCode") and not _lacked_its_files(end) else Phase.PENDING


def _lacked_its_files(end: Object) -> bool:
    """Return whether kubelet replaced the ConfigMap's files while it started a container. Its next attempt succeeds."""
    return end.get("reason") == "StartError" and _SUBPATHS in end.get("message", "")


def why_ended(job: str, pod: Object, end: Object) -> str:
    """Return why a container ended."""
    code = end.get("exitCode")
    if code == 0:
        return "ended as requested, and restarts"
    if end.get("reason") == "OOMKilled":
        cause, change = containers.out_of_memory(pod)
        return f"killed {cause} (OOMKilled): {change} jobs.{job}.memory"
    if _lacked_its_files(end):
        return "its node replaced the files of tfk8s while it started"
    if code == _KILLED:
        return "killed (exit code 137): by its node, or by someone with rights on it"
    return f"ended with exit code {code}"


def is_outdated(pod: Object, stateful_set: Object) -> bool:
    """Return whether a pod is older than the last change of its StatefulSet, or may be."""
    status = stateful_set.get("status", {})
    if "observedGeneration" not in status:  # the StatefulSet is new, and so are its pods
        return False
    if is_on_delete(stateful_set):  # pods start away from a bad node
        return False
    if status["observedGeneration"] != stateful_set["metadata"]["generation"]:
        return True
    return bool(pod["metadata"]["labels"].get("controller-revision-hash") != status.get("updateRevision"))


def is_on_delete(stateful_set: Object) -> bool:
    """Return whether a StatefulSet leaves its pods alone, whatever its template."""
    return bool(stateful_set["spec"].get("updateStrategy", {}).get("type") == ON_DELETE)


def has_run(pod: Object) -> bool:
    """Return whether the pod's container has run, even for a moment."""
    return any(
        "waiting" not in container["state"] or container.get("lastState") for container in containers.statuses(pod)
    )


def was_never_ready(pod: Object) -> bool:
    """Return whether the pod's container runs and was never ready: an unready container is not starting."""
    states = [container["state"] for container in containers.statuses(pod)]
    running = [state["running"] for state in states if "running" in state]
    ready = condition(pod, "Ready")
    if not running or ready is None:
        return False
    return bool(seconds(ready["lastTransitionTime"]) <= seconds(running[0]["startedAt"]))


def is_explained_by_log(pod: Object) -> bool:
    """Return whether the pod's log explains its last end. It explains no deletion."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    for container in containers.statuses(pod):
        state = container["state"]
        end = state.get("terminated") or ("waiting" in state and container.get("lastState", {}).get("terminated"))
        if end and end.get("reason") != "OOMKilled" and end.get("exitCode") not in (0, _KILLED):
            return True
    return False


def _image(job: str, image: str, reason: str, message: str) -> PhaseAndReason:
    change = f"change jobs.{job}.image (or image, for all jobs), or make it available to the nodes"
    if reason == "InvalidImageName":
        return Phase.FAILED, f'"{image}" is not the name of an image: change jobs.{job}.image (or image, for all jobs)'
    if reason == "ErrImageNeverPull":
        return Phase.FAILED, f'image "{image}" is not on its node: {change}'
    if re.search(r"not found|does not exist|manifest unknown", message):
        return Phase.FAILED, f'image "{image}" is not found: {change}'
    if re.search(r"denied|unauthorized|authentication required|403|401", message):
        return Phase.FAILED, f'image "{image}" may not be pulled: it needs credentials, or there is none; {change}'
    cause = message.rpartition("failed to do request: ")[2] or message
    return Phase.PENDING, f'image "{image}" can\'t be pulled: {cause or reason}; {change}'


def scheduling_gate(pod: Object, queue: str = "") -> str:
    """Return what keeps a pod from the scheduler, or ""; `queue` is what Kueue says."""
    if queues.is_waiting(pod):
        return queues.waits(pod, queue)
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
    return f"held back by its scheduling gate {' and '.join(gates)}" if gates else ""


def _without_node(job: str, pod: Object, node: NodeEvent | None, fields: str) -> str:
    """Return why a pod has no node: by the autoscaler if it knows, else by the scheduler."""
    if node is not None and not node.is_misfit:
        return node.reason
    scheduled = condition(pod, "PodScheduled") or {}
    reason = unschedulable(job, pod, scheduled.get("message", ""), fields)
    return reason if node is None else f"{reason}; {node.reason}"


def unschedulable(job: str, pod: Object, message: str, fields: str) -> str:
    """Return why no node takes a pod, from the scheduler's message; `fields` is as of `phase_and_reason`."""
    cause = message.partition(". ")[0]  # the rest is about preemption
    if of_gang := _OF_GANG.search(cause):
        return f"all tasks start together or none, and not all find a node ({of_gang[0]})"
    if short := _SHORT.search(cause):
        resource = short[1]
        amount = containers.spec(pod)["resources"].get("requests", {}).get(resource, "")
        request = f"{amount} {resource}".strip()
        return f"no node has {request} free ({cause}): {remedy(fields, resource)}, or add nodes"
    if missing := admission.missing(job, cause):
        return missing
    if "node affinity/selector" in cause:
        cures = [f"change jobs.{job}.{' or '.join(placement.selecting_fields(pod['spec']))}"]
        cures += ["shorten avoid"] if placement.avoided(pod["spec"]) else []
        return f"no node has the labels it asks for ({cause}): {', or '.join(cures)}"
    if "topology spread constraints" in cause or "pod affinity rules" in cause:
        return f"no node suits its topology ({cause}): change jobs.{job}.topology, or add nodes"
    if "untolerated taint" in cause:
        return (
            f"every node has a taint that it does not tolerate ({cause}): `kubectl describe nodes` shows which is "
            f"short of disk or not ready; other taints belong in jobs.{job}.tolerations"
        )
    if "PersistentVolumeClaim" in cause:
        return f"a volume is not bound ({cause}): see `kubectl get pvc`, and `volumes`"
    return f"no node takes it: {cause}" if cause else "it waits for the scheduler"


def condition(pod: Object, kind: str) -> Object | None:
    """Return a pod's condition of that type."""
    return next((item for item in pod["status"].get("conditions", ()) if item["type"] == kind), None)


def runs_on(pod: Object) -> str:
    """Return the name of a pod, and of its node when it has one."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
    return f"{name} on {node}" if node else name


def since(pod: Object) -> float:
    """Return when a pod's process started or ended, else when the pod was created, in seconds since the epoch."""
    for container in containers.statuses(pod):
        for state in (container["state"].get(name, {}) for name in ("running", "terminated")):
            if time := state.get("startedAt") or state.get("finishedAt"):
                return seconds(time)
    return seconds(pod["metadata"]["creationTimestamp"])


def seconds(text: str) -> float:
    """Return a time of the API server as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
