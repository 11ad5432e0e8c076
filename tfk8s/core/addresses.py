"""What a task is told of its cluster, in each of the forms that programs read.

Three ways to say where tasks listen: `local_address` on this machine, `pod_address` in Kubernetes,
`given_address` where the job file itself says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tfk8s.core import naming
from tfk8s.core.spec import JobFile, Task

Address = Callable[[Task], str]


def local_address(job_file: JobFile) -> Address:
    """Return where tasks listen on this machine: `localhost:PORT+i`, counting tasks in the job file's order.

    The tasks of a job with a port of its own count from that port instead.
    """
    ports: dict[Task, int] = {}
    following = job_file.port
    for job in job_file.jobs:
        first = following if job.port is None else job.port
        ports.update({task: first + task.index for task in job})
        if job.port is None:
            following += job.tasks
    return lambda task: f"localhost:{ports[task]}"


def loopback_ports(addresses: Mapping[Task, str]) -> dict[Task, int]:
    """Return the ports that tasks would have on a single machine, from where they listen on machines of their own.

    As in `local_address`, jobs that listen on the same port count on from each other.
    """
    following: dict[int, int] = {}
    ports = {}
    for task, address in addresses.items():
        own = int(address.rpartition(":")[2])
        ports[task] = following.get(own, own)
        following[own] = ports[task] + 1
    return ports


def pod_address(job_file: JobFile, namespace: str) -> Address:
    """Return where tasks listen in Kubernetes."""
    ports = {job.name: job.port or job_file.port for job in job_file.jobs}
    return lambda task: naming.pod_address(job_file.name, namespace, task.job, task.index, ports[task.job])


def given_address(job_file: JobFile) -> Address:
    """Return where tasks listen according to the job file's explicit addresses."""
    addresses = {job.name: job.addresses for job in job_file.jobs}
    return lambda task: addresses[task.job][task.index]
