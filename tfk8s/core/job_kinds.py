"""The jobs of a job file by what their tasks run: servers, programs, or tf.data's service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfk8s.core.roles import DATA, WHILE_IDLE, keeps_state, takes_part

if TYPE_CHECKING:
    from tfk8s.core.spec import Job, JobFile, Task

_CHIEFS = ("chief", "master")


def program_jobs(job_file: JobFile) -> list[Job]:
    """Return the jobs that run programs."""
    return [job for job in job_file.jobs if job.program]


def success_tasks(job_file: JobFile) -> list[Task]:
    """Return the tasks whose ends with code 0 are the run's success.

    If the job file names none, these are the tasks of the chief; without a chief, those of all programs except an
    evaluator, which never ends by itself.
    """
    jobs = program_jobs(job_file)
    names = [job.name for job in jobs]
    chosen = [job_file.run.success] if job_file.run.success else [name for name in _CHIEFS if name in names][:1]
    chosen = chosen or [name for name in names if takes_part(name)] or names
    return [task for job in jobs for task in job if job.name in chosen or str(task) in chosen]


def data_job(job_file: JobFile) -> Job | None:
    """Return the job that runs tf.data's service."""
    return next((job for job in job_file.jobs if job.kind == DATA), None)


def is_elastic(job_file: JobFile) -> bool:
    """Return whether the cluster can change without a restart: each session brings the ClusterSpec to its servers.

    Programs start servers of their own, with a ClusterSpec that never changes. All tasks of their cluster have it.
    """
    return not program_jobs(job_file)


def has_target(job_file: JobFile) -> bool:
    """Return whether sessions can connect to the master."""
    return job_file.job(job_file.master).has_server


def drained_while_idle(job_file: JobFile) -> list[Job]:
    """Return the jobs whose disruption budgets are open while the cluster idles, and closed while it is used."""
    if job_file.drain != WHILE_IDLE:
        return []
    return [job for job in job_file.jobs if not job.program and keeps_state(job.name, job_file.master)]


def watches_use(job_file: JobFile) -> bool:
    """Return whether the cluster's own Job asks the tasks for their clients."""
    return job_file.idle is not None or bool(drained_while_idle(job_file))


def keeps_limits(job_file: JobFile) -> bool:
    """Return whether the cluster has a Job for its limits or its disruption budgets."""
    return any(job_file.limits) or watches_use(job_file)


def has_own_jobs(job_file: JobFile) -> bool:
    """Return whether the cluster has Jobs of its own: for limits and disruption budgets, or for a shared history."""
    return keeps_limits(job_file) or job_file.history is not None
