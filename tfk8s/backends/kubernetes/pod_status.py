"""Why a task is not ready, in words, with the field of the job file to change: from what Kubernetes says of its pod."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from tfk8s.backends.kubernetes.disruptions import DELETED, why_removed
from tfk8s.core.status import Phase
from tfk8s.render.pods import Object

PhaseAndReason = tuple[Phase, str]

_PENDING: PhaseAndReason = (Phase.PENDING, "")
_SHORT = re.compile(r"Insufficient ([a-z0-9./-]*[a-z0-9])")
_NOT_FOUND = re.compile(
    r"(secret|configmap|persistentvolumeclaim|serviceaccount) \"([^\"]*)\" not found", re.IGNORECASE
)
_KINDS = {
    "configmap": "ConfigMap",
    "persistentvolumeclaim": "PersistentVolumeClaim",
    "secret": "Secret",
    "serviceaccount": "ServiceAccount",
}
_OWN_VOLUME = 'for volume "tfk8s"'  # render/pods.py and render/script_job.py
_QUOTA = re.compile(r"exceeded quota: ([^,]+), (.*)", re.DOTALL)
_POD_SECURITY = re.compile(r'violates PodSecurity "([^"]*)": (.*)', re.DOTALL)
_LIMIT_RANGE = re.compile(
    r"(?:(?:maximum|minimum) \S+ usage|\S+ max limit to request ratio) per \w+ is [^,\]]+, but [^,\]]+"
)
_PRIORITY = re.compile(r"no PriorityClass with name (\S+) was found")
_NO_REASON = re.compile(r"Error: \w+")  # it repeats the container's state, such as ErrImagePull
_KILLED = 137


def phase_and_reason(job: str, pod: Object | None, complaints: Sequence[str], room: str = "") -> PhaseAndReason:
    """Return a task's phase and the reason for it.

    Args:
        job: its name in the job file.
        pod: as the API server gives it; None where there is none yet.
        complaints: the messages of warnings about the pod, or about its StatefulSet where there is no pod; the
            latest last.
        room: what to do where the namespace allows less; default: change what the job asks for.
    """
    if pod is None:
        return _not_created(job, complaints, room)
    status = pod["status"]
    removed = why_removed(job, pod)
    if "deletionTimestamp" in pod["metadata"]:
        return Phase.PENDING, "the pod of before is being stopped" + ("" if removed == DELETED else f": {removed}")
    if status.get("phase") == "Failed":
        return Phase.FAILED, removed
    if (placed := condition(pod, "PodScheduled")) and placed["status"] != "True":
        return Phase.PENDING, scheduling_gate(pod) or unschedulable(job, pod, placed.get("message", ""))
    containers = status.get("containerStatuses")
    if not containers:
        return _PENDING
    if node_is_silent(pod):
        node = pod["spec"].get("nodeName")
        return Phase.FAILED, f"its node {node} does not answer: `kubectl describe node {node}` shows since when"
    return _container(job, pod, containers[0], complaints)


def node_is_silent(pod: Object) -> bool:
    """Return whether a pod counts as not ready though its containers were: its node is not heard of."""
    ready, containers = ((condition(pod, kind) or {}).get("status") for kind in ("Ready", "ContainersReady"))
    return (ready, containers) == ("False", "True") and not pod["spec"].get("readinessGates")


def last_end(pod: Object) -> Object | None:
    """Return the last end of a pod's container, as Kubernetes reports it; None before an end."""
    for container in pod["status"].get("containerStatuses", ()):
        if end := container["state"].get("terminated") or container.get("lastState", {}).get("terminated"):
            return dict(end)
    return None


def _container(job: str, pod: Object, container: Object, complaints: Sequence[str]) -> PhaseAndReason:
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
        return Phase.PENDING, _missing(job, message) or f"its container can't be created: {message}"
    told = next((text for text in reversed(complaints) if not _NO_REASON.fullmatch(text)), "")
    if "Failed to pull image" in told:
        return Phase.PENDING, _image(job, container["image"], "", told)[1]
    return Phase.PENDING, _missing(job, told) or told


def _phase_of(end: Object) -> Phase:
    """Return the phase of a task whose container ended: a server that was told to end has not failed."""
    return Phase.FAILED if end.get("exitCode") else Phase.PENDING


def why_ended(job: str, pod: Object, end: Object) -> str:
    """Return why a container ended."""
    code = end.get("exitCode")
    if code == 0:
        return "was told to end, and starts again"
    if end.get("reason") == "OOMKilled":
        limit = pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        return f"killed at its memory limit of {limit} (OOMKilled): raise jobs.{job}.memory"
    if code == _KILLED:
        return "killed (exit code 137): by its node, or by someone with rights on it"
    return f"ended with exit code {code}"


def outdated(pod: Object, stateful_set: Object) -> bool:
    """Return whether a pod was made before its StatefulSet changed, or may have been."""
    status = stateful_set.get("status", {})
    if "observedGeneration" not in status:  # it is new, as its pods are
        return False
    if status["observedGeneration"] != stateful_set["metadata"]["generation"]:
        return True
    return bool(pod["metadata"]["labels"].get("controller-revision-hash") != status.get("updateRevision"))


def has_run(pod: Object) -> bool:
    """Return whether the pod's container has run, be it for a moment."""
    return any(
        "waiting" not in container["state"] or container.get("lastState")
        for container in pod["status"].get("containerStatuses", ())
    )


def was_never_ready(pod: Object) -> bool:
    """Return whether the pod's container runs and was not ready before: what is not any more, does not come up."""
    running = [
        one["state"]["running"] for one in pod["status"].get("containerStatuses", ()) if "running" in one["state"]
    ]
    ready = condition(pod, "Ready")
    if not running or ready is None:
        return False
    return bool(seconds(ready["lastTransitionTime"]) <= seconds(running[0]["startedAt"]))


def crashed(pod: Object) -> bool:
    """Return whether the pod's last end is one that its log explains."""
    for container in pod["status"].get("containerStatuses", ()):
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


def scheduling_gate(pod: Object) -> str:
    """Return in words what keeps a pod from the scheduler, or "" where nothing does."""
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
    if any(gate.startswith("kueue.x-k8s.io/") for gate in gates):
        return "its queue has not admitted it: `kubectl get workloads` shows the queue's, and why they wait"
    return f"it is held back by its scheduling gate {' and '.join(gates)}" if gates else ""


def unschedulable(job: str, pod: Object, message: str) -> str:
    """Return in words why no node takes a pod, from the scheduler's message."""
    said = message.partition(". ")[0]  # what follows is about preemption
    if short := _SHORT.search(said):
        resource = short[1]
        asked = pod["spec"]["containers"][0]["resources"]["requests"].get(resource, "")
        field = {"cpu": "cpu", "memory": "memory"}.get(resource, "gpus")
        what = f"{asked} {resource}".strip()
        return f"no node has {what} free ({said}): lower jobs.{job}.{field}, or add nodes"
    if missing := _missing(job, said):
        return missing
    if "node affinity/selector" in said:
        return f"no node has the labels it asks for ({said}): change jobs.{job}.accelerator or node_selector"
    if "untolerated taint" in said:
        return (
            f"every node keeps it away ({said}): `kubectl describe nodes` shows which is short of disk or not ready; "
            f"other taints belong in jobs.{job}.tolerations"
        )
    if "PersistentVolumeClaim" in said:
        return f"a volume is not bound ({said}): see `kubectl get pvc`, and `volumes`"
    return f"no node takes it: {said}" if said else "it waits for the scheduler"


def _not_created(job: str, complaints: Sequence[str], room: str) -> PhaseAndReason:
    if not complaints:
        return _PENDING
    message = complaints[-1]
    if found := _POD_SECURITY.search(message):
        return Phase.FAILED, f'the namespace\'s pod security "{found[1]}" refuses its pod: {found[2]}'
    if found := _QUOTA.search(message):
        lower = room or f"lower what jobs.{job} asks"
        return Phase.PENDING, f'the namespace\'s quota "{found[1]}" is used up ({found[2]}): {lower}'
    if limits := sorted(_LIMIT_RANGE.findall(message)):
        change = room or f"change jobs.{job}.cpu or memory (a task's CPU limit is a core at least), or have it changed"
        return Phase.PENDING, f"the namespace's LimitRange refuses its pod ({'; '.join(limits)}): {change}"
    if found := _PRIORITY.search(message):
        return Phase.PENDING, f'there is no PriorityClass "{found[1]}": change jobs.{job}.priority'
    return Phase.PENDING, _missing(job, message) or f"its pod can't be created: {message}"


def _missing(job: str, message: str) -> str:
    found = _NOT_FOUND.search(message)
    if found is None:
        return ""
    kind, name = found[1].lower(), found[2]
    if _OWN_VOLUME in message:
        again = "run the script again" if kind == "secret" else "`tfk8s up` makes it again"
        return f'its {_KINDS[kind]} "{name}", which tfk8s made, is gone: {again}'
    field = "security.service_account" if kind == "serviceaccount" else f"volumes or jobs.{job}.volumes"
    return f'there is no {_KINDS[kind]} "{name}": create it, or change {field}'


def condition(thing: Object, kind: str) -> Object | None:
    """Return a pod's condition of that type."""
    for known in thing["status"].get("conditions", ()):
        if known["type"] == kind:
            return dict(known)
    return None


def since(pod: Object) -> float:
    """Return when a pod's process started or ended, else when the pod was made, in seconds since the epoch."""
    for container in pod["status"].get("containerStatuses", ()):
        for state in container["state"].values():
            if when := state.get("startedAt") or state.get("finishedAt"):
                return seconds(when)
    return seconds(pod["metadata"]["creationTimestamp"])


def seconds(text: str) -> float:
    """Return a time of Kubernetes' as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
