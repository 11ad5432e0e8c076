"""What was observed of a cluster, as plain frozen data: the same for every backend."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfk8s.core.spec import Task

MOST_SHOWN = 500  # characters of a script's command


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
        runs_on: what runs the task: a process ("pid 4711") or a pod and node ("mnist-worker-0 on node-1").
        restarts: how often it was started again.
        since: when it entered the phase, seconds since the epoch; None where unknown.
        reason: why it is not ready, what ended it last, or what it lacks; "" where there is nothing to say.
    """

    task: Task
    phase: Phase
    address: str
    runs_on: str = ""
    restarts: int = 0
    since: float | None = None
    reason: str = ""

    @property
    def state(self) -> str:
        """The phase and the reason, to be read after "it is"."""
        return f"{self.phase.lower()}{f' ({self.reason})' if self.reason else ''}"

    def reason_since(self, moment: float) -> str:
        """Return the reason where it is of now, or of an end since a moment, in seconds since the epoch; else ""."""
        is_old = self.phase is Phase.READY and self.since is not None and self.since < moment
        return "" if is_old else self.reason


class ScriptPhase(enum.StrEnum):
    """Where a session script is in its life."""

    PENDING = "Pending"  # it has not started yet
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"  # it ended with exit code 0
    FAILED = "Failed"  # it ended otherwise, or can't start


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStatus:
    """One session script.

    Attributes:
        name: what commands take ("script-4e9c21"); where none does, its process ("pid 4711").
        phase: where it is in its life.
        command: its file and arguments, with the flags before them, as a shell takes them; cut where it is long.
        runs_on: its pod and node.
        since: when it entered the phase, seconds since the epoch; None where unknown.
        exit_code: None until it has ended.
        reason: why it does not start, or what ended it; "" where there is nothing to say.
    """

    name: str
    phase: ScriptPhase
    command: str
    runs_on: str = ""
    since: float | None = None
    exit_code: int | None = None
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
        scripts: the session scripts that run, and those that ended not long ago, the latest first.
    """

    name: str
    backend: str
    location: str
    target: str
    master: Task
    tasks: tuple[TaskStatus, ...]
    created: float | None = None
    reason: str = ""
    scripts: tuple[ScriptStatus, ...] = ()

    @property
    def running(self) -> int:
        """How many session scripts have not ended."""
        return sum(script.phase in (ScriptPhase.PENDING, ScriptPhase.RUNNING) for script in self.scripts)

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
