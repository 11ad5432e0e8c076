"""The ClusterSpec in short, `chief=1,ps=2:2300`: how many tasks a job has, and its port if that is its own."""

from __future__ import annotations

from collections.abc import Mapping

from tfk8s.core.spec import JobFile


def compact_cluster(job_file: JobFile) -> str:
    """Return the ClusterSpec in the form that `task.config.derive_cluster` reads: `chief=1,ps=2:2300`."""
    return ",".join(
        f"{job.name}={job.tasks}" + ("" if job.port in (None, job_file.port) else f":{job.port}")
        for job in job_file.jobs
    )


def scaled_cluster(compact: str, tasks: Mapping[str, int]) -> str:
    """Return the compact form of a cluster whose jobs have so many tasks; those not named have as many as before."""
    parts = []
    for part in compact.split(","):
        job, _, count = part.partition("=")
        before, colon, port = count.partition(":")
        parts.append(f"{job}={tasks.get(job, before)}{colon}{port}")
    return ",".join(parts)
