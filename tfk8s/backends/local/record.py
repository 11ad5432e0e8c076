"""The record of a local cluster: everything that its tasks and scripts are started with.

`tfk8s up` makes the record, and the cluster's folder keeps it as JSON.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfk8s.backends.local import capacity, interpreter
from tfk8s.core import addresses, kinds
from tfk8s.core.environment import data_variables, program_variables, texts
from tfk8s.core.kinds import program_jobs
from tfk8s.core.programs import Program, RunPolicy
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import ClusterSpec, Env, EnvSource, Job, JobFile, Network, Peer, Security, Task, Topology, Volume

CLUSTER_ID_VARIABLE = "TFK8S_CLUSTER_ID"  # in the environment of every process of a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """The part of one task.

    Attributes:
        job, index: the task.
        address: the address of the task's server.
        environment: the variables that the task gets besides the supervisor's, which are those of `tfk8s up`.
        preload: the modules that the task imports before it starts its server.
        note: what the task lacks on this machine, or "".
    """

    job: str
    index: int
    address: str
    environment: dict[str, str]
    preload: list[str]
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
        python: the interpreter that runs scripts.
        tensorflow: the folder of the package `tensorflow`.
        exposed: whether the tasks listen in this machine's own network.
    """

    job_file: JobFile
    id: str
    created: float
    tasks: list[TaskRecord]
    cluster: ClusterSpec
    python: str
    tensorflow: str
    exposed: bool

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.job_file.name

    @property
    def target(self) -> str:
        """The master's address for sessions inside the cluster, "grpc://host:port"; "" without servers."""
        return f"grpc://{self.cluster[self.job_file.master][0]}" if kinds.has_target(self.job_file) else ""

    @property
    def programs(self) -> list[str]:
        """The names of the tasks with programs, which have no servers for sessions."""
        return [str(task) for job in program_jobs(self.job_file) for task in job]

    @property
    def variables(self) -> dict[str, str]:
        """The variables that scripts get: those of the job file with fixed values, and the address of tf.data's."""
        service = data_variables(self.job_file, addresses.local_address(self.job_file))
        return {**texts(self.job_file.master_env), **service}

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return {**_plain(self), "job_file": job_file_to_dict(self.job_file)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Record:
        """Return the record from the data of `to_dict`."""
        tasks = [TaskRecord(**task) for task in plain["tasks"]]
        return cls(**{**plain, "tasks": tasks, "job_file": job_file_from_dict(plain["job_file"])})


def make_record(job_file: JobFile, *, exposed: bool, created: float | None = None) -> Record:
    """Return the record of a job file's cluster on this machine.

    Args:
        job_file: the job file.
        exposed: whether the tasks listen in this machine's own network.
        created: the time of the cluster's first `up`; None is now.
    """
    python = interpreter.script_python(os.environ)
    address = addresses.local_address(job_file)
    service = data_variables(job_file, address)
    gpus = capacity.assign_gpus(job_file, capacity.gpus())
    tasks = [
        TaskRecord(
            job=job.name,
            index=task.index,
            address=address(task),
            environment={
                **texts({**job_file.env, **job.env}),
                **_gpu_environment(job, gpus[task]),
                **service,
                **(program_variables(job_file, task, address) if job.program else {}),
            },
            preload=list(job.preload),
            note=_missing_gpus(job, len(gpus[task])),
        )
        for job in job_file.jobs
        for task in job
    ]
    return Record(
        job_file=job_file, id=secrets.token_hex(16), created=time.time() if created is None else created, tasks=tasks,
        cluster=job_file.cluster_spec(address), python=python,
        tensorflow=str(interpreter.tensorflow_folder(python)), exposed=exposed,
    )  # fmt: skip


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


def job_file_to_dict(job_file: JobFile) -> dict[str, Any]:
    """Return a job file as plain data, with `jobs` as a map by name in the same order."""
    plain: dict[str, Any] = _plain(job_file)
    return {**plain, "jobs": {job["name"]: job for job in plain["jobs"]}}


def job_file_from_dict(plain: Mapping[str, Any]) -> JobFile:
    """Return the job file from the data of `job_file_to_dict`."""
    network = {direction: tuple(_peer(peer) for peer in peers) for direction, peers in plain["network"].items()}
    return JobFile(
        **{
            **plain,
            "jobs": tuple(map(_job, plain["jobs"].values())),
            "env": _env(plain["env"]),
            "image_pull_secrets": tuple(plain["image_pull_secrets"]),
            "volumes": tuple(map(_volume, plain["volumes"])),
            "network": Network(**network),
            "security": Security(**plain["security"]),
            "run": RunPolicy(**plain.get("run", {})),
        }
    )


def _job(plain: Mapping[str, Any]) -> Job:
    tuples = {name: tuple(plain[name]) for name in ("addresses", "tolerations", "preload")}
    quantities = {name: _quantity(plain[name]) for name in ("cpu", "memory", "shm")}
    topology = plain["topology"] and Topology(**plain["topology"])
    volumes = tuple(map(_volume, plain["volumes"]))
    program = plain.get("program")
    return Job(**{
        **plain, **tuples, **quantities, "env": _env(plain["env"]), "topology": topology, "volumes": volumes,
        "program": program and Program(tuple(program["words"]), program["folder"]),
    })  # fmt: skip


def _env(plain: Mapping[str, Any]) -> Env:
    return {name: value if isinstance(value, str) else EnvSource(**value) for name, value in plain.items()}


def _volume(plain: Mapping[str, Any]) -> Volume:
    return Volume(**{**plain, "size": _quantity(plain["size"])})


def _peer(plain: Mapping[str, Any]) -> Peer:
    return Peer(**{**plain, "ports": tuple(plain["ports"])})


def _quantity(text: str | None) -> Quantity | None:
    return None if text is None else Quantity.parse(text)


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity):
        return value.text
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value
