"""A cluster's tasks, scripts and events, as the API server tells them to the pod of the cluster's own Job.

The words of `tfk8s status` need more of Kubernetes than this pod may read: a reason here is Kubernetes' own. Standard
library only: this file runs in pods.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tfk8s.core import naming, programs
from tfk8s.core.history import redaction
from tfk8s.core.history.facts import MAX_TEXT
from tfk8s.core.quantity import Quantity

Object = Mapping[str, Any]

_STATEFUL_INDEX = "apps.kubernetes.io/pod-index"
_PROGRAM_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_NAME = "batch.kubernetes.io/job-name"
_SCRIPT = re.compile(r"script-[0-9a-f]{6}\Z")
_PART = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,252}[a-z0-9])?")
_NO_GPUS = ("cpu", "memory", "ephemeral-storage")
_SCHEDULED, _READY = "PodScheduled", "Ready"


class ObservedPod(NamedTuple):
    """A pod of the cluster that runs a task or a script.

    Attributes:
        name: the pod's.
        log: the name of its log: "worker-1", or "script-4e9c21".
        task: the name of its task, "worker/1"; "" for a script.
        container: the name of its container.
        phase: as `core.status.Phase` has it.
        created: the time of the pod's creation, as Kubernetes has it.
        restarts: the number of restarts.
        exit_code: of a container that has ended for good; else None.
        reason: of its last end, or of what it waits for; else "".
        runs: whether the container runs, or has ended and may have a log.
        requests: the cores, bytes and GPUs that its containers request; 0 after their end.
    """

    name: str
    log: str
    task: str
    container: str
    phase: str
    created: str
    restarts: int
    exit_code: int | None
    reason: str
    runs: bool
    requests: tuple[float, float, int] = (0.0, 0.0, 0)

    def plain(self) -> dict[str, Any]:
        """Return the task for a fact, as `writing.add_status` has tasks."""
        return {
            "task": self.task, "phase": self.phase, "restarts": self.restarts, "exit_code": self.exit_code,
            "reason": self.reason, "progress": "",
        }  # fmt: skip


def observe(pod: Object) -> ObservedPod | None:
    """Return what a pod tells; None for another pod, such as a warm one, or of a form that is not Kubernetes'.

    Args:
        pod: from the API server.
    """
    try:
        return _observe(pod)
    except (LookupError, TypeError, ValueError, AttributeError):  # an admission webhook may change what it likes
        return None


def _observe(pod: Object) -> ObservedPod | None:
    metadata, status, labels = pod["metadata"], pod.get("status", {}), pod["metadata"].get("labels", {})
    container = next(item for item in pod["spec"]["containers"] if item["name"] in naming.CONTAINERS)
    if not _PART.fullmatch(metadata["name"]) or not (named := _names(labels, container)):
        return None
    own: Object = next((item for item in status.get("containerStatuses", ()) if item["name"] == container["name"]), {})
    state = own.get("state", {})
    end = state.get("terminated") or {}
    last = end or own.get("lastState", {}).get("terminated") or {}
    told = programs.read_end(str(last.get("message", "")))
    is_over = bool(end) and status.get("phase") in ("Succeeded", "Failed")
    code = told[0] if told else last.get("exitCode")
    return ObservedPod(
        metadata["name"], *named, container["name"], _phase(pod, own, state, _PROGRAM_INDEX in labels),
        str(metadata["creationTimestamp"]), max(int(own.get("restartCount", 0)), told[1] if told else 0),
        int(code) if is_over and code is not None else None, _reason(status, state, last),
        "running" in state or bool(end),
        (0.0, 0.0, 0) if is_over else _requests(pod["spec"]["containers"]),
    )  # fmt: skip


def _requests(containers: Iterable[Object]) -> tuple[float, float, int]:
    asked = [(item.get("resources") or {}).get("requests") or {} for item in containers]
    amounts = [(name, float(Quantity.parse(str(amount)).value)) for one in asked for name, amount in one.items()]
    cpu, memory = (sum(amount for name, amount in amounts if name == kind) for kind in ("cpu", "memory"))
    return cpu, memory, int(sum(amount for name, amount in amounts if name not in _NO_GPUS))


def _names(labels: Mapping[str, str], container: Object) -> tuple[str, str] | None:
    """Return the names of the log and of the task; None for another pod."""
    if match := _SCRIPT.search(labels.get(_JOB_NAME, "")):
        return match[0], ""
    job = next((item.get("value", "") for item in container.get("env", ()) if item["name"] == "TFK8S_JOB"), "")
    index = labels.get(_PROGRAM_INDEX) or labels.get(_STATEFUL_INDEX)
    if index is None or not index.isdecimal() or not naming.is_job_name(job):
        return None
    return f"{job}-{int(index)}", naming.task(job, int(index))


def _phase(pod: Object, own: Object, state: Object, is_program: bool) -> str:
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return str(pod["status"]["phase"])
    if "running" in state:
        return "Running" if is_program else "Ready" if own.get("ready") else "Starting"
    return "Failed" if "terminated" in state else "Pending"


def _reason(status: Object, state: Object, last: Object) -> str:
    """Return Kubernetes' reason for what the container waits for, or of its last end that was no success."""
    unscheduled = (
        item for item in status.get("conditions", ()) if (item["type"], item["status"]) == (_SCHEDULED, "False")
    )
    waiting: Object = state.get("waiting") or next(unscheduled, {})
    told = waiting if waiting.get("message") else last or waiting or status  # a status tells of an eviction
    if told is last and last.get("exitCode") == 0:
        return ""
    words = (str(told.get("reason") or ""), str(told.get("message") or "").strip())
    return redaction.text(": ".join(filter(None, words)).partition("\n")[0])[:MAX_TEXT]


def requests(pods: Iterable[ObservedPod]) -> dict[str, float]:
    """Return what tasks request together, for a fact."""
    asked = [pod.requests for pod in pods if pod.task]
    return {name: sum(one[place] for one in asked) for place, name in enumerate(("cpu", "memory", "gpus"))}


def newest(pods: Iterable[ObservedPod]) -> dict[str, ObservedPod]:
    """Return the newest pod of each log's name: a program's pod may have had several."""
    return {pod.log: pod for pod in sorted(pods, key=lambda pod: pod.created)}


def result(jobs: Iterable[Object], pods: Iterable[ObservedPod]) -> int | None:
    """Return the exit code of the run of the programs; None while the run goes on, and without programs.

    Args:
        jobs: the Jobs of the programs, as the API server has them.
        pods: those of the tasks.
    """
    ends = [_end(job) for job in jobs]
    if "Failed" in ends:
        return next((pod.exit_code for pod in pods if pod.task and pod.exit_code), 1)
    return 0 if ends and all(ends) else None


def _end(job: Object) -> str:
    """Return how a Job has ended: "Complete", "Failed", or "" while the Job runs."""
    conditions = (item["type"] for item in job.get("status", {}).get("conditions", ()) if item["status"] == "True")
    ended = job["metadata"].get("annotations", {}).get(naming.RUN_END, "")
    return next((kind for kind in (ended, *conditions) if kind in ("Complete", "Failed")), "")


def event(plain: Object, tasks: Mapping[str, str], objects: Collection[str]) -> dict[str, Any] | None:
    """Return an event for the record, with the fields of `core.events.Event`; None for one of another cluster.

    Args:
        plain: from the API server.
        tasks: the tasks and scripts by the names of their pods.
        objects: the names of the cluster's other objects.
    """
    try:
        subject = plain.get("involvedObject") or {}
        name, kind = str(subject.get("name", "")), str(subject.get("kind", ""))
        about = tasks.get(name) or (f"{kind} {name}" if name in objects else "")
        if plain.get("reason") == "Unhealthy" and str(plain.get("message")).startswith("Startup probe failed"):
            return None  # as in each start: the server does not listen yet
        series = plain.get("series") or {}
        moment = series.get("lastObservedTime") or plain.get("lastTimestamp") or plain.get("eventTime")
        return {
            "id": str(plain["metadata"]["uid"]), "about": about, "warning": plain.get("type") == "Warning",
            "time": seconds(moment or plain["metadata"]["creationTimestamp"]), "reason": str(plain.get("reason", "")),
            "message": redaction.text(str(plain.get("message", "")).strip())[:MAX_TEXT],
            "count": int(series.get("count") or plain.get("count") or 1),
        } if about else None  # fmt: skip
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def seconds(moment: str) -> float:
    """Return a time of Kubernetes in seconds since the epoch.

    Raises:
        ValueError: the text is another.
    """
    return datetime.fromisoformat(moment).timestamp()
