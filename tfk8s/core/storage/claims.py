"""The volumes of a whole job file: the claims to make, and the tasks that mount a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfk8s.core.spec import Job, JobFile
    from tfk8s.core.storage.volumes import Volume


def volumes(job_file: JobFile) -> list[Volume]:
    """Return the volumes of the cluster and of its jobs, in their order."""
    return [*job_file.volumes, *(volume for job in job_file.jobs for volume in job.volumes)]


def claims_to_make(job_file: JobFile) -> list[Volume]:
    """Return a volume for each claim that is made if it does not exist."""
    found = {volume.claim: volume for volume in reversed(volumes(job_file)) if volume.create}
    names = dict.fromkeys(volume.claim for volume in volumes(job_file) if volume.create)
    return [found[name] for name in names]


def claim_names(job_file: JobFile) -> list[str]:
    """Return the names of all claims that tasks mount."""
    return list(dict.fromkeys(volume.claim for volume in volumes(job_file) if volume.claim))


def jobs_with(job_file: JobFile, claim: str) -> list[Job]:
    """Return the jobs whose tasks mount a claim."""
    return [job for job in job_file.jobs if any(one.claim == claim for one in (*job_file.volumes, *job.volumes))]


def has_bucket(job_file: JobFile) -> bool:
    """Return whether a task mounts a bucket."""
    return any(volume.bucket for volume in volumes(job_file))
