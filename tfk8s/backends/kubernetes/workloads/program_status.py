"""The status of a task that runs a program, from its Job and its pod."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tfk8s.backends.kubernetes.pods import containers, disruptions, pod_status, queues
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.backends.kubernetes.workloads import script_status
from tfk8s.core import naming
from tfk8s.core.programs import LOST_TASK, PEER_LOST, TIMED_OUT, read_end
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase
from tfk8s.render import manifests
from tfk8s.render.pods import Object

_FAILURES = "batch.kubernetes.io/job-index-failure-count"  # an annotation of a pod: the pods of its index that failed
COMPLETE, FAILED = _ENDED = ("Complete", "Failed")
_DEADLINE = "DeadlineExceeded"
_RUN_END = "RunEnd"
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class ProgramStatus(NamedTuple):
    """The status of a task that runs a program; the attributes are those of `TaskStatus`."""

    phase: Phase
    reason: str = ""
    exit_code: int | None = None
    restarts: int = 0


def end(job: Object) -> Object | None:
    """Return the condition of a Job that has ended; None while it runs.

    A Job that `tfk8s wait` has ended is suspended and never gets such a condition.
    """
    if result := job["metadata"].get("annotations", {}).get(naming.RUN_END):
        return {"type": result, "status": "True", "reason": _RUN_END}
    conditions = job.get("status", {}).get("conditions", ())
    return next((item for item in conditions if item["type"] in _ENDED and item["status"] == "True"), None)


def read(job: Object, task: Task, pod: Object | None, events: PodEvents) -> ProgramStatus:
    """Return the status of a task.

    Args:
        job: the Job of the task's program.
        pod: the newest pod of the task; None without a pod.
        events: of the pod, else of the Job.
    """
    ended = end(job)
    if pod is None or (ended and "deletionTimestamp" in pod["metadata"]):
        return _without_pod(job, task, ended, events)
    restarts = int(pod["metadata"].get("annotations", {}).get(_FAILURES, "0"))
    if "deletionTimestamp" not in pod["metadata"] and (last := script_status.ended(pod)):
        return _ended(job, task, pod, last)
    if pod["status"].get("phase") == "Running" and "running" in _state(pod) and not pod_status.is_node_silent(pod):
        return ProgramStatus(Phase.RUNNING, restarts=restarts)
    phase, reason = pod_status.phase_and_reason(task.job, pod, events)
    return ProgramStatus(phase, reason, restarts=restarts)


def _state(pod: Object) -> Object:
    return next((dict(status["state"]) for status in containers.statuses(pod)), {})


def _without_pod(job: Object, task: Task, ended: Object | None, events: PodEvents) -> ProgramStatus:
    """Return the status of a task whose pod was deleted, or does not exist yet."""
    if any(first <= task.index <= last for first, last in _ranges(job)):
        return ProgramStatus(Phase.SUCCEEDED, exit_code=0)
    if ended and ended["type"] == COMPLETE:
        return ProgramStatus(Phase.SUCCEEDED, "ended: the run succeeded")
    if ended and ended.get("reason") == _DEADLINE:
        return ProgramStatus(Phase.FAILED, "ended: the run took longer than its timeout: raise run.timeout", TIMED_OUT)
    if ended:
        of_its_job = "" if ended.get("reason") == _RUN_END else " of its job"
        return ProgramStatus(Phase.FAILED, f"ended: another program{of_its_job} failed")
    if job["spec"].get("suspend"):
        return ProgramStatus(Phase.PENDING, queues.waits(job, events.queue))
    return ProgramStatus(*pod_status.phase_and_reason(task.job, None, events))


def _ended(job: Object, task: Task, pod: Object, last: Object) -> ProgramStatus:
    """Return the status of a task whose container has ended."""
    code, restarts = last.get("exitCode"), int(pod["metadata"].get("annotations", {}).get(_FAILURES, "0"))
    if verdict := read_end(last.get("message", "")):  # process 1 has written this: the program does not run again here
        code, restarts = verdict[0], restarts + verdict[1]
    if code == 0:
        return ProgramStatus(Phase.SUCCEEDED, exit_code=0, restarts=restarts)
    if code == PEER_LOST:
        reason = LOST_TASK
    elif code is None or disruptions.disruption(task.job, pod):
        reason = disruptions.why_removed(task.job, pod) or disruptions.FAILED
    else:
        reason = pod_status.why_ended(task.job, pod, {**last, "exitCode": code})
    if verdict or end(job):
        return ProgramStatus(Phase.FAILED, reason, code, restarts)
    return ProgramStatus(Phase.PENDING, f"{reason}; its Job makes another pod", restarts=restarts)


def ended_tasks(job: Object) -> int:
    """Return the number of tasks of a Job that will have no pod any more."""
    if end(job) is not None:
        return manifests.task_count(job)
    return sum(last - first + 1 for first, last in _ranges(job))


def _ranges(job: Object) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index of each range of tasks that have succeeded, such as "0,2-4" in the status."""
    for first, last in _RANGE.findall(job.get("status", {}).get("completedIndexes", "")):
        yield int(first), int(last or first)
