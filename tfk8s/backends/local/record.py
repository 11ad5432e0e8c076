"""What a local cluster is started with, as its folder keeps it."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfk8s.backends.local import capacity, interpreter
from tfk8s.core import addresses
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import ClusterSpec, Job, JobFile, Network, Peer, Security, Task, Volume

CLUSTER_ID_VARIABLE = "TFK8S_CLUSTER_ID"  # in the environment of every process of a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """What one task needs to start.

    Attributes:
        job, index: which.
        address: where it listens.
        environment: its variables.
        preload: modules to import first.
        note: what it lacks on this machine; "" for nothing.
    """

    job: str
    index: int
    address: str
    environment: dict[str, str]
    preload: list[str]
    note: str = ""

    @property
    def task(self) -> Task:
        """Which task."""
        return Task(self.job, self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a cluster was started with.

    Attributes:
        name: the cluster's.
        id: random; the value of `MARK`.
        created: seconds since the epoch.
        spec: the job file, as `tfk8s.plain` makes it.
        master: the job whose task 0 sessions connect to.
        tasks: in the job file's order.
        cluster: the ClusterSpec that sessions see.
        python: the interpreter that runs scripts.
        tensorflow: the folder of the package `tensorflow`.
        exposed: the tasks listen in this machine's own network.
    """

    name: str
    id: str
    created: float
    spec: dict[str, Any]
    master: str
    tasks: list[TaskRecord]
    cluster: ClusterSpec
    python: str
    tensorflow: str
    exposed: bool

    @property
    def target(self) -> str:
        """What sessions inside the cluster connect to."""
        return f"grpc://{self.cluster[self.master][0]}"

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Return the record that `to_json` wrote."""
        data = json.loads(text)
        tasks = [TaskRecord(**task) for task in data.pop("tasks")]
        return cls(tasks=tasks, **data)


def make_record(job_file: JobFile, *, exposed: bool) -> Record:
    """Return what a job file's cluster is started with, on this machine as it is now."""
    python = interpreter.script_python(os.environ)
    address = addresses.local_address(job_file)
    gpus = capacity.assign_gpus(job_file, capacity.gpus())
    tasks = [
        TaskRecord(
            job=job.name,
            index=task.index,
            address=address(task),
            environment={**job_file.env, **job.env, **_gpu_environment(gpus[task])},
            preload=list(job.preload),
            note=_missing_gpus(job, len(gpus[task])),
        )
        for job in job_file.jobs
        for task in job
    ]
    return Record(
        name=job_file.name, id=secrets.token_hex(16), created=time.time(), spec=to_dict(job_file),
        master=job_file.master, tasks=tasks, cluster=job_file.cluster_spec(address), python=python,
        tensorflow=str(interpreter.tensorflow_folder(python)), exposed=exposed,
    )  # fmt: skip


def _missing_gpus(job: Job, found: int) -> str:
    return f"asks for {job.gpus} GPUs, has {found} on this machine" if found < job.gpus else ""


def _gpu_environment(gpus: Sequence[int]) -> dict[str, str]:
    """Return the variables that show a task its own GPUs and no others."""
    if not gpus:
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def to_dict(job_file: JobFile) -> dict[str, Any]:
    """Return a job file as plain data; `jobs` is a map by name, in the same order."""
    plain: dict[str, Any] = _plain(job_file)
    plain["jobs"] = {job["name"]: job for job in plain["jobs"]}
    return plain


def from_dict(plain: Mapping[str, Any]) -> JobFile:
    """Return the job file that `from_job_file` was given."""
    network = {way: tuple(_peer(peer) for peer in peers) for way, peers in plain["network"].items()}
    return JobFile(
        **{
            **plain,
            "jobs": tuple(map(_job, plain["jobs"].values())),
            "volumes": tuple(map(_volume, plain["volumes"])),
            "network": Network(**network),
            "security": Security(**plain["security"]),
        }
    )


def _job(plain: Mapping[str, Any]) -> Job:
    tuples = {name: tuple(plain[name]) for name in ("addresses", "tolerations", "preload")}
    amounts = {name: _quantity(plain[name]) for name in ("cpu", "memory")}
    return Job(**{**plain, **tuples, **amounts, "volumes": tuple(map(_volume, plain["volumes"]))})


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
