"""What a local cluster is started with, as its folder keeps it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from tfk8s.spec import ClusterSpec, Task

MARK = "TFK8S_CLUSTER_ID"  # in the environment of every process of a cluster


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
