"""The record of a local cluster: everything that its tasks and scripts are started with.

`tfk8s up` makes the record, and the cluster's folder keeps it as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfk8s.backends import interpreter
from tfk8s.backends.local import capacity
from tfk8s.backends.local.isolation import OWN_NETWORK, Isolation
from tfk8s.backends.local.loopback.ports import Ports
from tfk8s.backends.plain_data import as_plain, from_plain, job_file_from_dict, job_file_to_dict
from tfk8s.core import addresses, job_kinds
from tfk8s.core.environment import data_variables, folder_variables, grace_variables, program_variables, texts
from tfk8s.core.job_kinds import program_jobs
from tfk8s.core.spec import ClusterSpec, Job, JobFile, Task
from tfk8s.errors import Tfk8sError


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """The part of one task.

    Attributes:
        job, index: the task.
        address: the address of the task's server.
        port: the port that the task has in a network of the cluster's own. Scripts may name the task by it.
        environment: the variables that the task gets besides the supervisor's, which are those of `tfk8s up`.
        preload: the modules that the task imports before it starts its server.
        folder: where these modules are searched last.
        note: what the task lacks on this machine, or "".
    """

    job: str
    index: int
    address: str
    port: int
    environment: dict[str, str]
    preload: list[str]
    folder: str = ""
    note: str = ""

    @property
    def task(self) -> Task:
        """The task."""
        return Task(self.job, self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of one cluster.

    Attributes:
        job_file: the job file.
        id: a random text, the value of `CLUSTER_ID_VARIABLE` in the cluster's processes.
        created: seconds since the epoch.
        tasks: the parts of the tasks, in the job file's order.
        cluster: the ClusterSpec that sessions see.
        python: the interpreter that runs tasks, and scripts unless another environment is active.
        is_python_named: whether the user named the interpreter, which then runs all scripts.
        tensorflow: the folder of the package `tensorflow`.
        tensorflow_version: its version; "" for a cluster that an earlier tfk8s started.
        exposed: whether the user accepts that others can connect to the tasks.
        elastic: whether each server knows only itself, so that the number of tasks can change.
        isolation: who can connect to the tasks, as the supervisor has found.
        is_leased: whether the cluster is removed when no `run` holds its lease.
    """

    job_file: JobFile
    id: str
    created: float
    tasks: list[TaskRecord]
    cluster: ClusterSpec
    python: str
    tensorflow: str
    exposed: bool
    elastic: bool
    isolation: Isolation = OWN_NETWORK
    is_python_named: bool = False
    tensorflow_version: str = ""
    is_leased: bool = False

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.job_file.name

    @property
    def target(self) -> str:
        """The master's address for sessions inside the cluster, "grpc://host:port"; "" without servers."""
        return f"grpc://{self.cluster[self.job_file.master][0]}" if job_kinds.has_target(self.job_file) else ""

    @property
    def addresses(self) -> dict[Task, str]:
        """The address of each task."""
        return {task.task: task.address for task in self.tasks}

    @property
    def programs(self) -> list[str]:
        """The names of the tasks with programs, which have no servers for sessions."""
        return [str(task) for job in program_jobs(self.job_file) for task in job]

    @property
    def variables(self) -> dict[str, str]:
        """The variables that scripts get: those of the job file with fixed values, and the address of tf.data's."""
        service = data_variables(self.job_file, lambda task: self.addresses[task])
        own = {**self.port_variables, **folder_variables(self.job_file)}
        return {**texts(self.job_file.master_env), **service, **own, **grace_variables(self.job_file)}

    @property
    def port_variables(self) -> dict[str, str]:
        """The variable with the ports of tasks by the ports that scripts know; empty in a network of the cluster's."""
        moved = {str(task.port): _port(task.address) for task in self.tasks if self.isolation.is_shared}
        return {"TFK8S_PORTS": json.dumps(moved)} if moved else {}

    def script_python(self, python: str | None) -> str:
        """Return the interpreter for a script; `python` is the one that the script's user names."""
        if python is not None or self.is_python_named:
            return python or self.python
        return interpreter.active(os.environ) or self.python

    def is_resized(self, job_file: JobFile) -> bool:
        """Return whether a job file has only other numbers of tasks, to which the cluster can change while it runs."""
        tasks = {job.name: job.tasks for job in self.job_file.jobs}
        same = (dataclasses.replace(job, tasks=tasks.get(job.name, job.tasks)) for job in job_file.jobs)
        differs = job_file_to_dict(job_file) != job_file_to_dict(self.job_file)
        return self.elastic and differs and dataclasses.replace(job_file, jobs=tuple(same)) == self.job_file

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return {**as_plain(self), "job_file": job_file_to_dict(self.job_file)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Record:
        """Return the record from the data of `to_dict`.

        Raises:
            ValueError: the data is damaged, or from another version of tfk8s.
        """
        try:
            return from_plain(cls, {**plain, "job_file": job_file_from_dict(plain["job_file"])})._consistent()
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, Tfk8sError) as error:
            raise ValueError(f"it is no record of a cluster: {error}") from error

    def _consistent(self) -> Record:
        """Return this record, if its parts name the same tasks at the same addresses.

        Raises:
            ValueError, LookupError: the parts differ.
        """
        found, count = self.addresses, sum(job.tasks for job in self.job_file.jobs)
        if count != len(self.tasks) or list(found) != list(self.job_file):
            raise ValueError("its tasks are not those of its job file")
        if self.cluster != self.job_file.cluster_spec(found.__getitem__):
            raise ValueError("its addresses differ")
        for task in self.tasks:
            _port(task.address)
            int(task.environment.get("TFK8S_GPUS", "0"))
        _ = job_kinds.success_tasks(self.job_file), self.target  # errors, unless the job file has these tasks
        return self


def make_record(
    job_file: JobFile, cluster_id: str, *, exposed: bool, python: str | None = None, is_python_named: bool = False,
    created: float | None = None, is_leased: bool = False,
) -> Record:  # fmt: skip
    """Return the record of a job file's cluster on this machine.

    Args:
        cluster_id: the id of the cluster.
        exposed: whether the user accepts that others can connect to the tasks.
        python: the interpreter; None is the one of the active environment.
        is_python_named: whether the user named the interpreter.
        created: the time of the cluster's first `up`; None is now.
        is_leased: as in `Record`.
    """
    python = python or interpreter.script_python(os.environ)
    tensorflow = interpreter.tensorflow_folder(python)
    address = addresses.local_address(job_file)
    gpus = capacity.assign_gpus([(job, task) for job in job_file.jobs for task in job], range(capacity.gpus()))
    return Record(
        job_file=job_file, id=cluster_id, created=time.time() if created is None else created,
        tasks=[_task(job_file, job, task, address, gpus[task]) for job in job_file.jobs for task in job],
        cluster=job_file.cluster_spec(address), python=python,
        is_python_named=is_python_named, tensorflow=str(tensorflow), exposed=exposed,
        is_leased=is_leased,
        tensorflow_version=interpreter.tensorflow_version(tensorflow) if tensorflow else "",
        # A program's server knows only its own ClusterSpec, and can't use the tasks of an elastic cluster.
        elastic=not any(program_jobs(job_file)),
    )  # fmt: skip


def resize(record: Record, job_file: JobFile) -> Record:
    """Return the record of a cluster with other numbers of tasks. The tasks that stay keep their addresses and GPUs.

    Args:
        record: the cluster as it is.
        job_file: its job file, with other numbers of tasks.
    """
    wanted = set(job_file)
    kept = {task.task: task for task in record.tasks if task.task in wanted}
    ports = {task: kept[task].port for task in kept}
    preferred = addresses.local_address(job_file)
    for task in job_file:
        if task not in ports:
            port = _port(preferred(task))
            ports[task] = max(ports.values()) + 1 if port in ports.values() else port
    used = {gpu for task in kept.values() for gpu in task.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")}
    free = [gpu for gpu in range(capacity.gpus()) if str(gpu) not in used]
    gpus = capacity.assign_gpus([(job, task) for job in job_file.jobs for task in job if task not in kept], free)

    def address(task: Task) -> str:
        return kept[task].address if task in kept else f"localhost:{ports[task]}"

    tasks = [kept.get(task) or _task(job_file, job, task, address, gpus[task]) for job in job_file.jobs for task in job]
    return dataclasses.replace(record, job_file=job_file, tasks=tasks, cluster=job_file.cluster_spec(address))


def relocate(record: Record, ports: Ports, kept: Collection[Task] = ()) -> Record:
    """Return the record of a cluster whose tasks get free ports, and addresses of IPv4.

    Args:
        record: the cluster, with the ports that its tasks would have in a network of their own.
        ports: of the cluster's supervisor.
        kept: the tasks that run already, and keep their ports.

    Raises:
        OSError: there are no free ports.
    """
    used = {_port(task.address) for task in record.tasks if task.task in kept}
    wanted = {task.task: _port(task.address) for task in record.tasks if task.task not in kept}  # that of before, too
    chosen = ports.choose(wanted, used)
    before = record.addresses

    def address(task: Task) -> str:
        # Where IPv6 is off, as in Docker and on some machines, TensorFlow takes a task that is gone at "localhost" for
        # one that answers nothing ("No message returned for unary request"), and the loss has no name.
        return f"127.0.0.1:{chosen[task]}" if task in chosen else before[task]

    job_file = record.job_file
    moved = [dataclasses.replace(task, address=address(task.task)) for task in record.tasks]
    new = dataclasses.replace(record, tasks=moved, cluster=job_file.cluster_spec(address))
    service = data_variables(job_file, address)
    tasks = [
        dataclasses.replace(task, environment={
            **task.environment, **service,
            **(program_variables(job_file, task.task, address) | new.port_variables
               if job_file.job(task.job).program else {}),
        })
        for task in moved
    ]  # fmt: skip
    return dataclasses.replace(new, tasks=tasks)


def _port(address: str) -> int:
    return addresses.host_and_port(address)[1]


def _task(job_file: JobFile, job: Job, task: Task, address: Callable[[Task], str], gpus: Sequence[int]) -> TaskRecord:
    return TaskRecord(
        job=job.name,
        index=task.index,
        address=address(task),
        port=_port(address(task)),
        environment={
            **texts({**job_file.env, **job.env}),
            **_gpu_environment(job, gpus),
            **data_variables(job_file, address),
            **folder_variables(job_file),
            **(program_variables(job_file, task, address) if job.program else {}),
        },
        preload=list(job.preload),
        folder=job.folder,
        note=_missing_gpus(job, len(gpus)),
    )


def _missing_gpus(job: Job, assigned: int) -> str:
    return (
        f"asks for {job.gpus} GPU{'s' * (job.gpus > 1)}, has {assigned} on this machine" if assigned < job.gpus else ""
    )


def _gpu_environment(job: Job, gpus: Sequence[int]) -> dict[str, str]:
    """Return the variables that show a task its own GPUs and no others, and how many of them TensorFlow must see."""
    if not gpus:
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return variables if job.gpus_optional else {**variables, "TFK8S_GPUS": str(len(gpus))}
