"""The addresses of tasks' servers on this machine, in Kubernetes, and as the job file gives them.

Standard library only: this file also runs in scripts' pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tfk8s.core import naming

if TYPE_CHECKING:
    from tfk8s.core.spec import JobFile, Task

    Address = Callable[[Task], str]

K = TypeVar("K")
SCHEME = "grpc://"  # of a session's target
POD_NAMESPACE = "$(TFK8S_NAMESPACE)"  # Kubernetes expands this in the variables of a container
MAX_PORT = 65535
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SCRIPTS_OF_A_POD = 32


def script_ports(port: int) -> range:
    """Return the ports for servers of scripts that share a pod, apart from those of tasks.

    Args:
        port: the master's.
    """
    start = port + 100 if port + 100 + _SCRIPTS_OF_A_POD <= MAX_PORT else port - 1000
    return range(start, start + _SCRIPTS_OF_A_POD)


def local_address(job_file: JobFile) -> Address:
    """Return a function from a task to its address on this machine, `localhost:PORT`."""
    ports = loopback_ports({task: job.port or job_file.port for job in job_file.jobs for task in job})
    return lambda task: f"localhost:{ports[task]}"


def loopback_ports(ports: Mapping[K, int]) -> dict[K, int]:
    """Return the ports of tasks that share one machine, from the ports that they have on machines of their own.

    The first task of each port keeps the port. The tasks after it take the next ports.
    """
    next_port: dict[int, int] = {}
    shared: dict[K, int] = {}
    for task, port in ports.items():
        shared[task] = next_port.get(port, port)
        next_port[port] = shared[task] + 1
    return shared


def pod_address(job_file: JobFile, namespace: str) -> Address:
    """Return a function from a task to its address in Kubernetes."""
    ports = {job.name: job.port or job_file.port for job in job_file.jobs}
    return lambda task: naming.pod_address(job_file.name, namespace, task.job, task.index, ports[task.job])


def given_address(job_file: JobFile) -> Address:
    """Return a function from a task to the address that the job file gives."""
    addresses = {job.name: job.addresses for job in job_file.jobs}
    return lambda task: addresses[task.job][task.index]


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address, as `socket` takes them: "[::1]:2222" is `("::1", 2222)`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def task_at(target: str, tasks: Mapping[str, str], *, in_pod: bool) -> str:
    """Return the task that a session's target, "grpc://host:port", leads to; "" if the target is no task's.

    Args:
        tasks: the address of each task, by its short name.
        in_pod: whether the tasks have the loopback addresses of a single machine, too.
    """
    address = target.removeprefix(SCHEME)
    if not address.rpartition(":")[2].isdecimal():
        return ""
    known = {_normal(host_and_port(at)): task for task, at in tasks.items()}
    if in_pod:
        ports = loopback_ports({task: host_and_port(at)[1] for task, at in tasks.items()})
        known |= {(LOOPBACK[0], port): task for task, port in ports.items()}
    return known.get(_normal(host_and_port(address)), "")


def _normal(address: tuple[str, int]) -> tuple[str, int]:
    return (LOOPBACK[0] if address[0] in LOOPBACK else address[0], address[1])
