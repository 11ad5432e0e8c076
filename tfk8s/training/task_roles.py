"""The tasks of a strategy: those that compute, and those that hold the variables.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tfk8s.core import naming
from tfk8s.errors import InvalidInput, quoted, there_are

_DEFAULT_JOB = "worker"
_DEFAULT_VARIABLES = "ps"

Tasks = Mapping[str, Mapping[int, str]]  # the address of each task, by job and index


@dataclass(frozen=True, slots=True)
class TaskRoles:
    """The tasks of a strategy, as TensorFlow writes them ("/job:worker/replica:0/task:1").

    Attributes:
        compute: the tasks that compute.
        variables: the tasks that hold the variables.
    """

    compute: Sequence[str]
    variables: Sequence[str]


def used_tasks(cluster: Mapping[str, Sequence[str]], without: Collection[str]) -> Tasks:
    """Return the cluster without the tasks that are left out ("worker/3"), and without jobs that have no other task."""
    kept = {
        job: {i: address for i, address in enumerate(addresses) if naming.task(job, i) not in without}
        for job, addresses in cluster.items()
    }
    return {job: tasks for job, tasks in kept.items() if tasks}


def assign_roles(tasks: Tasks, job: str | None, variables: str | None) -> TaskRoles:
    """Return the tasks that compute and the tasks that hold the variables; arguments as of `strategy`.

    Raises:
        InvalidInput: the cluster does not have a job.
    """
    master = next(iter(tasks), "")  # TFK8S_CLUSTER has the master's job first
    job = job or (_DEFAULT_JOB if _DEFAULT_JOB in tasks else master)
    variables = variables or (_DEFAULT_VARIABLES if _DEFAULT_VARIABLES in tasks else job)
    for name in (job, variables):
        if name not in tasks:
            raise InvalidInput(
                f"tfk8s.strategy(): this cluster has no job {quoted(name)}", help=there_are(list(tasks), "job")
            )
    return TaskRoles(_devices(tasks, job), _devices(tasks, variables))


def _devices(tasks: Tasks, job: str) -> list[str]:
    return [f"/job:{job}/replica:0/task:{index}" for index in tasks[job]]
