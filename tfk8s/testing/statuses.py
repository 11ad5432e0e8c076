"""The status of clusters that are data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfk8s.backends import suspended
from tfk8s.core import addresses, job_kinds, roles
from tfk8s.core.lifetime import Suspension
from tfk8s.core.resources import named
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus

CREATED = 1_700_000_000.0  # when every cluster was made


def make(job_file: JobFile, phase: Phase, pid: int, kept: Sequence[TaskStatus], exit_code: int) -> ClusterStatus:
    """Return the status of a new cluster.

    Args:
        phase: of the new tasks.
        pid: the process of the first task.
        kept: the tasks that stay as they are.
        exit_code: of programs, which end at once.
    """
    address = addresses.local_address(job_file)
    jobs, by_task = {job.name: job for job in job_file.jobs}, {task.task: task for task in kept}
    tasks = (
        TaskStatus(
            task=task, phase=phase, address=address(task), runs_on=f"pid {number}", since=CREATED,
            is_program=jobs[task.job].program is not None, is_data=jobs[task.job].kind == roles.DATA,
        )
        for number, task in enumerate(job_file, pid)
    )  # fmt: skip
    return ClusterStatus(
        name=job_file.name, backend="local", location=f"/state/{job_file.name}", created=CREATED,
        target=f"grpc://{address(job_file.master_task)}" if job_kinds.has_target(job_file) else "",
        master=job_file.master_task, success=tuple(job_kinds.success_tasks(job_file)), requests=named(job_file),
        tasks=tuple(by_task.get(task.task) or start(task, phase, exit_code) for task in tasks),
    )  # fmt: skip


def start(task: TaskStatus, phase: Phase, exit_code: int) -> TaskStatus:
    """Return a task that has started; a program has ended with the exit code."""
    if not task.is_program or phase is not Phase.READY:
        return replace(task, phase=phase)
    reason, end = (f"exited with {exit_code}", Phase.FAILED) if exit_code else ("", Phase.SUCCEEDED)
    return replace(task, phase=end, exit_code=exit_code, reason=reason)


def restart(status: ClusterStatus, task: Task | None, phase: Phase, exit_code: int) -> ClusterStatus:
    """Return a status in which a task, or all tasks, are other ones; further arguments as for `start`."""
    again = [start(replace(old, restarts=old.restarts + 1), phase, exit_code) for old in status.tasks]
    tasks = (new if task in (None, new.task) else old for old, new in zip(status.tasks, again, strict=True))
    return replace(status, tasks=tuple(tasks))


def suspend(status: ClusterStatus, by: str, flags: str) -> ClusterStatus:
    """Return the status of a cluster that is suspended now, or was before."""
    wish = status.suspended or Suspension(CREATED, by)
    tasks = tuple(replace(task, phase=Phase.SUSPENDED, runs_on="") for task in status.tasks)
    return replace(status, suspended=wish, tasks=tasks, reason=suspended.reason(status.name, wish, flags))
