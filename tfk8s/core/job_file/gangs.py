"""The rule that all tasks of a gang have the same priority and the same scheduler, which else starts none of them.

Source: `validatePodGroup` in pkg/scheduler/schedule_one_podgroup.go of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from tfk8s.core.spec import JobFile

FIELD = "schedulingGroup"  # of a pod's spec
_SHARED = ("priorityClassName", "schedulerName")


def is_possible(job_file: JobFile) -> bool:
    """Return whether all tasks can be one gang. They can't if `pod` already puts them into a group."""
    pods = (job_file.pod, *(job.pod for job in job_file.jobs))
    kinds = {shared(job.priority_class, job_file.pod, job.pod) for job in job_file.jobs}
    return len(kinds) == 1 and not any(FIELD in pod for pod in pods)


def shared(priority_class: str | None, *pods: Any) -> tuple[object, ...]:
    """Return what a job has to share with the other jobs of a gang.

    Args:
        priority_class: the job's.
        pods: the parts of pods' specs below `pod` of the cluster and of the job.
    """
    found: dict[str, object] = {"priorityClassName": priority_class}
    for pod in pods:
        found |= {name: pod[name] for name in _SHARED if name in (pod or {})}
    return tuple(found.get(name) for name in _SHARED)
