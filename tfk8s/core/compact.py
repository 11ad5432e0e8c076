"""The compact form of a ClusterSpec, `chief=1,ps=2:2300`: the number of tasks of each job, and a port of its own.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class JobSize(NamedTuple):
    """The part of a job in the compact form.

    Attributes:
        tasks: the number of tasks.
        port: the port of the tasks' servers.
    """

    tasks: int
    port: int


def parse_jobs(text: str, port: int = 0) -> dict[str, JobSize]:
    """Return the jobs of a compact form, in its order; `port` is the port of jobs without a port of their own."""
    jobs = {}
    for part in text.split(","):
        job, _, size = part.partition("=")
        tasks, _, own_port = size.partition(":")
        jobs[job] = JobSize(int(tasks), int(own_port or port))
    return jobs


def format_jobs(jobs: Mapping[str, JobSize], port: int = 0) -> str:
    """Return the compact form of jobs; it leaves out ports that are `port`."""
    return ",".join(f"{job}={size.tasks}" + (f":{size.port}" * (size.port != port)) for job, size in jobs.items())


def parse_ports(text: str) -> dict[str, int]:
    """Return the ports of jobs from a text such as `chief:2222,ps:2300`, in its order."""
    return {job: int(port) for job, _, port in (part.partition(":") for part in text.split(","))}


def format_ports(jobs: Mapping[str, JobSize]) -> str:
    """Return the ports of jobs as one text, which does not depend on the numbers of tasks."""
    return ",".join(f"{job}:{size.port}" for job, size in jobs.items())


def scale_jobs(text: str, tasks: Mapping[str, int]) -> str:
    """Return a compact form with new numbers of tasks; jobs that `tasks` does not name keep theirs."""
    jobs = parse_jobs(text).items()
    return format_jobs({job: JobSize(tasks.get(job, size.tasks), size.port) for job, size in jobs})
