"""What this machine can hold: memory, GPUs, ports."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from tfk8s.core import addresses
from tfk8s.core.spec import JobFile, Task
from tfk8s.errors import InvalidInput

_MIB = 1024 * 1024
# Measured with TensorFlow 2.21: the library 300 MB once, shared by all tasks, and 25 to 45 MB for each that is idle.
LIBRARY = 300 * _MIB
IDLE_TASK = 48 * _MIB


def check_memory(job_file: JobFile) -> None:
    """Raise an InvalidInput where the tasks' `memory` is more than this machine has free."""
    available = available_memory()
    parts = [
        (job, job.tasks * (int(job.memory.value) if job.memory is not None else IDLE_TASK)) for job in job_file.jobs
    ]
    needed = LIBRARY + sum(size for _, size in parts)
    if needed <= available:
        return
    listed = ", ".join(f"{job.name} {job.tasks} × {job.memory or f'{IDLE_TASK // _MIB}Mi'}" for job, _ in parts)
    raise InvalidInput(
        f'cluster "{job_file.name}" needs {_gib(needed)} of memory ({listed}); this machine has {_gib(available)} free',
        help="lower `memory` or `tasks` in a copy of the job file for this machine",
    )


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many bytes a new process could use: the kernel's estimate, or less where a cgroup limits it."""
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    free = next(int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:")
    return min([free, *_cgroup_free(cgroup)])


def _cgroup_free(cgroup: Path) -> Iterator[int]:
    names = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
    for limit_name, usage_name in names:
        try:
            limit, usage = (cgroup / limit_name).read_text().strip(), (cgroup / usage_name).read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            yield max(0, int(limit) - int(usage))


def killed_for_memory(proc: Path = Path("/proc")) -> int:
    """Return how many processes the kernel has killed for want of memory, or at a cgroup's limit, since the boot."""
    try:
        lines = (line.split() for line in (proc / "vmstat").read_text().splitlines())
        return next((int(line[1]) for line in lines if line[0] == "oom_kill"), 0)
    except OSError:
        return 0


def _gib(size: int | Decimal) -> str:
    return f"{size / 1024**3:,.1f} GiB"


def gpus(proc: Path = Path("/proc")) -> int:
    """Return how many NVIDIA GPUs this machine has."""
    return len(list(proc.glob("driver/nvidia/gpus/*")))


def assign_gpus(job_file: JobFile, available: int) -> dict[Task, list[int]]:
    """Return which GPUs each task gets, in the job file's order, until none is left."""
    free = iter(range(available))
    return {task: list(itertools.islice(free, job.gpus)) for job in job_file.jobs for task in job}


def check_ports(job_file: JobFile, *, exposed: bool) -> None:
    """Raise an InvalidInput where tasks can't have their loopback ports: past 65535, twice, or in use."""
    address = addresses.local_address(job_file)
    owners: dict[int, Task] = {}
    for task in job_file:
        _, port = addresses.host_and_port(address(task))
        if port > 65535:
            raise InvalidInput(f"{task} would listen on port {port}, past 65535", help="lower `port` in the job file")
        if port in owners:
            raise InvalidInput(
                f"{owners[port]} and {task} would both listen on port {port} of this machine",
                help="on this machine a job's tasks take consecutive ports: set the jobs' `port` further apart",
            )
        owners[port] = task
        if exposed:
            _check_free(task, port)


def _check_free(task: Task, port: int) -> None:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("", port))
        except OSError as error:
            raise InvalidInput(
                f"port {port}, where {task} would listen, is in use",
                help="set another `port` in the job file, or leave out --allow-exposed-ports: "
                "a network of the cluster's own has all ports free",
            ) from error
