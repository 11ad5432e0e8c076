"""A cluster as a gang: a PodGroup, by which Kubernetes' scheduler starts all tasks together or none.

`schedulingGroup` puts the pods of all StatefulSets and programs' Jobs into the PodGroup (k8s.io/api/scheduling/v1beta1,
since Kubernetes 1.37). v1alpha2 of 1.36 is left out: 1.37 no longer serves it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfk8s.core.job_file.gangs import FIELD
from tfk8s.core.spec import JobFile

Object = dict[str, Any]

KIND = "PodGroup"
GROUP = "scheduling.k8s.io"
VERSION = f"{GROUP}/v1beta1"


def spec_field(job_file: JobFile) -> Object:
    """Return the field of the pods of tasks that puts them into the cluster's PodGroup; {} without a gang."""
    return {FIELD: {"podGroupName": job_file.name}} if job_file.gang else {}


def spec(tasks: Iterable[int], workload: Object) -> Object:
    """Return the spec of a PodGroup.

    Args:
        tasks: the number of tasks of each job.
        workload: the StatefulSet or the Job of one of them, which has the priority of all.
    """
    pod = workload["spec"]["template"]["spec"]
    priority = {"priorityClassName": pod["priorityClassName"]} if "priorityClassName" in pod else {}
    return {"schedulingPolicy": {"gang": {"minCount": sum(tasks)}}, **priority}


def is_member(workload: Object, cluster: str) -> bool:
    """Return whether the pods of a StatefulSet or of a Job belong to the PodGroup of their cluster."""
    match workload["spec"]["template"]["spec"].get(FIELD):
        case {"podGroupName": str(name)}:
            return name == cluster
    return False
