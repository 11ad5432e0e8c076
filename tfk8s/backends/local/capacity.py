"""The limits of this machine: its system, memory, GPUs and ports; and the files of programs."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path

from tfk8s.core import addresses
from tfk8s.core.job_kinds import program_jobs
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.errors import InvalidInput
from tfk8s.sessions.forks import processes

_MIB = 1024 * 1024
# Measured with TensorFlow 2.21: all tasks share 300 MB of the library, and an idle task needs 25 to 45 MB.
LIBRARY_BYTES = 300 * _MIB
IDLE_TASK_BYTES = 48 * _MIB
# Measured with MultiWorkerMirroredStrategy: a fork for a script needs 93 MB more, an interpreter of its own 270 MB.
_SCRIPT_BYTES = 96 * _MIB
_COMMAND_BYTES = 256 * _MIB
_DESCRIPTORS = 30  # of a supervisor with one script
_TASK_DESCRIPTORS = 3  # the process, its output, and the pipe that says that the server listens


def check_memory(job_file: JobFile) -> None:
    """Raise an InvalidInput if the tasks' `memory` exceeds the free memory of this machine."""
    available = available_memory()
    needed = LIBRARY_BYTES + sum(job.tasks * _task_bytes(job) for job in job_file.jobs)
    if needed <= available:
        return
    jobs = ", ".join(
        f"{job.name} {job.tasks} × {job.memory or f'{_task_bytes(job) // _MIB}Mi'}" for job in job_file.jobs
    )
    raise InvalidInput(
        f'cluster "{job_file.name}" needs {_gib(needed)} of memory ({jobs}); this machine has {_gib(available)} free',
        help="lower `memory` or `tasks` in a copy of the job file for this machine",
    )


def check_growth(before: JobFile, after: JobFile) -> None:
    """Raise an InvalidInput if the memory of new tasks exceeds the free memory of this machine.

    Args:
        before: the job file with the old numbers of tasks.
        after: the job file with the new numbers of tasks.
    """
    more = {job.name: job.tasks - before.job(job.name).tasks for job in after.jobs}
    jobs = tuple(dataclasses.replace(job, tasks=more[job.name]) for job in after.jobs if more[job.name] > 0)
    if jobs:
        check_memory(dataclasses.replace(after, jobs=jobs))


def _task_bytes(job: Job) -> int:
    """Return the memory of one task, or without `memory` an estimate."""
    if job.memory is not None:
        return int(job.memory.value)
    if job.program is None:
        return IDLE_TASK_BYTES
    return _SCRIPT_BYTES if job.program.is_script else _COMMAND_BYTES


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that a new process could use: the kernel's estimate, or less if a cgroup limits it."""
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


def count_oom_kills(proc: Path = Path("/proc")) -> int:
    """Return the number of processes that the kernel has killed since the boot because memory was short."""
    return processes.count_oom_kills(proc / "vmstat")


def _gib(size: int | Decimal) -> str:
    return f"{size / 1024**3:,.1f} GiB"


def gpus(proc: Path = Path("/proc")) -> int:
    """Return the number of NVIDIA GPUs of this machine."""
    return len(list(proc.glob("driver/nvidia/gpus/*")))


def assign_gpus(tasks: Iterable[tuple[Job, Task]], available: Iterable[int]) -> dict[Task, list[int]]:
    """Return the GPUs of each task: the first tasks get theirs, until none is left.

    Args:
        tasks: the tasks that get GPUs, with their jobs.
        available: the free GPUs of this machine.
    """
    free = iter(available)
    return {task: list(itertools.islice(free, job.gpus)) for job, task in tasks}


def check_ports(job_file: JobFile) -> None:
    """Raise an InvalidInput if the port of a task is past 65535, or another task's."""
    address = addresses.local_address(job_file)
    owners: dict[int, Task] = {}
    for task in job_file:
        port = _valid_port(task, address(task))
        if port in owners:
            raise InvalidInput(
                f"{owners[port]} and {task} would both listen on port {port} of this machine",
                help="on this machine a job's tasks listen on consecutive ports: set the jobs' `port` further apart",
            )
        owners[port] = task


def check_new_ports(after: Mapping[Task, str]) -> None:
    """Raise an InvalidInput if the port of a task is past 65535.

    Args:
        after: the address of each task.
    """
    for task, address in after.items():
        _valid_port(task, address)


def _valid_port(task: Task, address: str) -> int:
    _, port = addresses.host_and_port(address)
    if port > addresses.MAX_PORT:
        reason = f"{task} would listen on port {port}, past {addresses.MAX_PORT}"
        raise InvalidInput(reason, help="lower `port` in the job file")
    return port


def check_job_file(job_file: JobFile) -> None:
    """Raise an InvalidInput for a job file that this machine can't run, however much is free."""
    if sys.platform != "linux":
        raise InvalidInput(
            "clusters on this machine need Linux",
            help="run tfk8s in a Linux virtual machine or container, or use a Kubernetes cluster",
        )
    for job in program_jobs(job_file):
        _check_program(job)
    if job_file.has_addresses:
        raise InvalidInput(f'the servers of "{job_file.name}" run already: its job file gives their addresses')


def _check_program(job: Job) -> None:
    """Raise an InvalidInput if a program is a file that does not exist."""
    program = job.program
    if program is not None and program.is_script and not Path(program.script).is_file():
        raise InvalidInput(
            f'jobs.{job.name}.program: there is no file "{program.words[0]}" in {program.folder}',
            help="a program's path is relative to the folder of the job file",
        )


def check_descriptors(job_file: JobFile) -> None:
    """Raise an InvalidInput if this user's limit of open files is too low for the supervisor of a cluster."""
    import resource  # Windows lacks the module, and `doctor` loads this file there

    needed = _DESCRIPTORS + _TASK_DESCRIPTORS * sum(job.tasks for job in job_file.jobs)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise InvalidInput(
            f'cluster "{job_file.name}" needs {needed} open files, and the limit of this shell is {limit}',
            help=f"run `sudo prlimit --nofile={needed}:{needed} --pid $$` in this shell, or raise `nofile` in "
            "limits.conf(5)",
        )
