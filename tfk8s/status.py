"""What was observed of a cluster, as plain frozen data: the same for every backend."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfk8s.spec import Task


class Phase(enum.StrEnum):
    """Where a task is in its life."""

    PENDING = "Pending"  # nothing runs yet
    STARTING = "Starting"  # a process runs, its server does not answer yet
    READY = "Ready"  # its server answers
    FAILED = "Failed"  # it ended; it may be started again (see the reason)
    UNKNOWN = "Unknown"  # it can't be seen


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task.

    Attributes:
        task: which.
        phase: where it is in its life.
        address: where its server listens, "host:port", as the other tasks know it.
        where: what it runs in: a process ("pid 4711") or a pod and node ("mnist-worker-0 on node-1").
        restarts: how often it was started again.
        since: when it entered the phase, seconds since the epoch; None where unknown.
        reason: why it is not ready, what ended it last, or what it lacks; "" where there is nothing to say.
    """

    task: Task
    phase: Phase
    address: str
    where: str = ""
    restarts: int = 0
    since: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """A cluster.

    Attributes:
        name: its name.
        backend: "local", "kubernetes" or "addresses".
        location: the folder, or the context and namespace, where it is.
        target: what sessions connect to from inside the cluster, "grpc://host:port".
        master: the task behind it.
        tasks: all tasks, in the job file's order.
        created: seconds since the epoch; None where unknown.
        reason: why the cluster as a whole is not usable, such as a supervisor that is gone.
        scripts: how many session scripts run.
    """

    name: str
    backend: str
    location: str
    target: str
    master: Task
    tasks: tuple[TaskStatus, ...]
    created: float | None = None
    reason: str = ""
    scripts: int = 0

    @property
    def ready(self) -> int:
        """How many tasks answer."""
        return sum(task.phase is Phase.READY for task in self.tasks)

    @property
    def phase(self) -> Phase:
        """The cluster's: Ready when every task is, Failed when one is or the cluster is lost."""
        phases = {task.phase for task in self.tasks}
        if self.reason or Phase.FAILED in phases:
            return Phase.FAILED
        for phase in (Phase.UNKNOWN, Phase.PENDING, Phase.STARTING):
            if phase in phases:
                return phase
        return Phase.READY
