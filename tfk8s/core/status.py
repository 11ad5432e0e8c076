"""The status of a cluster, its tasks and its scripts, the same for every backend."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfk8s.core import programs, roles
from tfk8s.core.history.shared import RecordStatus
from tfk8s.core.lifetime import NO_LIMITS, Limits, Suspension
from tfk8s.core.output.task_notes import BadNode, Straggler
from tfk8s.core.progress import StepProgress
from tfk8s.core.resources import NOTHING, Resources
from tfk8s.core.spec import Task

MAX_COMMAND_LENGTH = 500  # characters of a script's command


class Phase(enum.StrEnum):
    """The phase of a task."""

    PENDING = "Pending"  # no process runs yet
    STARTING = "Starting"  # the process runs, but the server does not respond yet
    READY = "Ready"  # the server responds
    RUNNING = "Running"  # the program runs
    SUCCEEDED = "Succeeded"  # the program ended with exit code 0, or the run's success ended it
    FAILED = "Failed"  # the process ended; the reason says whether it restarts
    SUSPENDED = "Suspended"  # nothing runs until `resume`
    UNKNOWN = "Unknown"  # the backend can't see the task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """The status of one task.

    Attributes:
        task: the task.
        phase: its phase.
        address: the address of its server for the other tasks, "host:port".
        runs_on: the process ("pid 4711"), or the pod and node ("mnist-worker-0 on node-1").
        restarts: the number of restarts.
        since: the start of the phase in seconds since the epoch; None if unknown.
        reason: the reason why the task is not ready, the cause of its last end, or what the task lacks; else "".
        required_gpus: the number of GPUs that the task was given and that TensorFlow must see.
        node_is_starting: whether an autoscaler starts a node for the task.
        is_pulling: whether the task's node pulls an image for the task.
        is_program: whether the task runs a program instead of a server.
        is_data: whether the task is a part of tf.data's service.
        exit_code: the exit code of a program that has ended and is not run again, 128 + N for signal N; else None.
        has_given_up: whether the server has ended for a reason that another start can't mend.
        progress: what the program has said by `tfk8s.progress`; None if nothing, or if the backend was not asked.
        bad_node: the node that may be at fault for the task's failure, and that the task's next start avoids.
    """

    task: Task
    phase: Phase
    address: str
    runs_on: str = ""
    restarts: int = 0
    since: float | None = None
    reason: str = ""
    required_gpus: int = 0
    node_is_starting: bool = False
    is_pulling: bool = False
    is_program: bool = False
    is_data: bool = False
    exit_code: int | None = None
    has_given_up: bool = False
    progress: StepProgress | None = None
    bad_node: BadNode | None = None

    @property
    def node(self) -> str:
        """The name of the node that the task's pod runs on; "" on this machine, and without a node."""
        return self.runs_on.partition(" on ")[2]

    @property
    def has_server(self) -> bool:
        """True if the task has a TensorFlow server."""
        return not self.is_program and not self.is_data

    @property
    def takes_part(self) -> bool:
        """True if sessions and programs see the task in the ClusterSpec."""
        return roles.takes_part(self.task.job, is_data=self.is_data)

    @property
    def is_up(self) -> bool:
        """True if the server responds, or the program runs or has succeeded."""
        return self.phase in (Phase.READY, Phase.RUNNING, Phase.SUCCEEDED)

    @property
    def state(self) -> str:
        """The phase and the reason, as the end of a sentence "the task is …"."""
        return f"{self.phase.lower()}{f' ({self.reason})' if self.reason else ''}"

    def reason_since(self, moment: float) -> str:
        """Return the reason, or "" if the server's process has run since before `moment` (seconds since the epoch)."""
        is_old = self.phase in (Phase.STARTING, Phase.READY) and self.since is not None and self.since < moment
        return "" if is_old else self.reason


class ScriptPhase(enum.StrEnum):
    """The phase of a session script."""

    PENDING = "Pending"  # the script has not started yet
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"  # the exit code is 0
    FAILED = "Failed"  # the exit code is another one, or the script can't start
    STARTING = "Starting"  # of a warm pod
    READY = "Ready"  # of a warm pod


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStatus:
    """The status of one session script.

    Attributes:
        name: the name for commands ("script-4e9c21"; "warm-8f14e45f-1b2c" for a warm pod), or on this machine the
            process ("pid 4711").
        phase: its phase.
        command: its flags, file and arguments, quoted for a shell, at most `MAX_COMMAND_LENGTH` characters.
        runs_on: the pod and node.
        since: the start of the phase in seconds since the epoch; None if unknown.
        exit_code: the exit code; None until the script has ended.
        reason: the reason why the script does not start, or the cause of its end; else "".
        progress: as in `TaskStatus`.
    """

    name: str
    phase: ScriptPhase
    command: str
    runs_on: str = ""
    since: float | None = None
    exit_code: int | None = None
    reason: str = ""
    progress: StepProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The status of one cluster.

    Attributes:
        name: the cluster's name.
        backend: "local", "kubernetes" or "addresses".
        location: the folder, or the context and namespace, as a text.
        target: the master's address for sessions inside the cluster, "grpc://host:port"; "" without servers.
        master: the task at that address.
        tasks: all tasks, in the job file's order.
        created: seconds since the epoch; None if unknown.
        reason: the reason why the whole cluster is unusable, such as a dead supervisor; else "".
        suspended: since when and by whom the cluster is suspended, which `reason` says too; else None.
        scripts: the running session scripts and those that ended recently, the latest first.
        requests: what all tasks request together; on this machine, what the job file names.
        billed: what tasks on Kubernetes request, under the names that rates have.
        limits: the times after which tfk8s removes the cluster.
        limits_problem: the reason why nothing removes the cluster at its limits; else "".
        record: in a shared history; None without.
        variables: the environment variables of the master, for scripts on another machine.
        idle_since: the end of the last session and script, in seconds since the epoch; None if unknown.
        success: the tasks whose programs' ends with code 0 are the run's success; empty without programs.
        is_elastic: whether each session brings the ClusterSpec to the servers, which know only themselves.
        gang: who lets all tasks start together or none: "PodGroup", "Kueue", or "" if the tasks start one by one.
        isolation: who can connect to the servers, for clusters on this machine; else "".
        way_out: the way to other networks, for clusters on this machine that run; else "".
        python: the path of the tasks' interpreter, for clusters on this machine; else "".
        tensorflow: the version of that interpreter's TensorFlow; else "".
        namespace: that of Kubernetes; else "".
    """

    name: str
    backend: str
    location: str
    target: str
    master: Task
    tasks: tuple[TaskStatus, ...]
    created: float | None = None
    reason: str = ""
    suspended: Suspension | None = None
    scripts: tuple[ScriptStatus, ...] = ()
    requests: Resources = NOTHING
    billed: Resources = NOTHING
    limits: Limits = NO_LIMITS
    limits_problem: str = ""
    record: RecordStatus | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    idle_since: float | None = None
    success: tuple[Task, ...] = ()
    is_elastic: bool = False
    gang: str = ""
    isolation: str = ""
    way_out: str = ""
    python: str = ""
    tensorflow: str = ""
    namespace: str = ""

    @property
    def interpreter(self) -> str:
        """The interpreter with the version of its TensorFlow, for people; "" if unknown."""
        return f"{self.python}, TensorFlow {self.tensorflow}" if self.tensorflow else self.python

    @property
    def removed_at(self) -> float | None:
        """The time at which `max_duration` removes the cluster, in seconds since the epoch; None without a limit."""
        if self.created is None or self.limits.max_duration is None:
            return None
        return self.created + self.limits.max_duration

    @property
    def running(self) -> int:
        """The number of session scripts that have not ended."""
        return sum(script.phase in (ScriptPhase.PENDING, ScriptPhase.RUNNING) for script in self.scripts)

    @property
    def ready(self) -> int:
        """The number of tasks whose servers are ready, or whose programs run or have succeeded."""
        return sum(task.is_up for task in self.tasks)

    @property
    def common_reason(self) -> str:
        """The reason that all tasks have while they are pending, such as that of their queue; "" if they differ."""
        reasons = {task.reason if task.phase is Phase.PENDING else "" for task in self.tasks}
        return next(iter(reasons)) if len(reasons) == 1 else ""

    @property
    def progress(self) -> StepProgress | None:
        """The progress of the first task of the run's success that reports, else of another task, else of a script."""
        tasks = sorted(self.tasks, key=lambda task: task.task not in self.success)
        reported = (*(task.progress for task in tasks), *(script.progress for script in self.scripts))
        return next(filter(None, reported), None)

    @property
    def stragglers(self) -> list[Straggler]:
        """The tasks with less than half of the rate that their job's tasks have in the middle, by `tfk8s.progress`."""
        by_job: dict[str, list[tuple[float, Task]]] = {}
        for task in self.tasks:
            if task.phase is Phase.RUNNING and task.progress and task.progress.rate is not None:
                by_job.setdefault(task.task.job, []).append((task.progress.rate, task.task))
        slow: list[Straggler] = []
        for rated in by_job.values():
            median = sorted(rate for rate, _ in rated)[len(rated) // 2]
            slow += (Straggler(task, rate, median) for rate, task in rated if rate < median / 2)
        return slow

    @property
    def bad_nodes(self) -> list[BadNode]:
        """The nodes that may be at fault for failures of tasks, in the order of the tasks."""
        return [task.bad_node for task in self.tasks if task.bad_node]

    @property
    def has_servers(self) -> bool:
        """True if sessions can connect to a task."""
        return any(task.has_server for task in self.tasks)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the run of the programs; None while the run goes on, and without programs."""
        if not self.success:
            return None
        ended = {str(task.task): task.exit_code for task in self.tasks if task.exit_code is not None}
        return programs.run_result(ended, map(str, self.success))

    @property
    def failed_program(self) -> TaskStatus | None:
        """The program whose failure is the end of the run; None if the run goes on or has succeeded."""
        if not self.exit_code:
            return None
        return next(task for task in self.tasks if task.exit_code)

    @property
    def phase(self) -> Phase:
        """The phase of all tasks together, or of the run that has ended.

        Suspended until `resume`, also while something still runs. Ready if every server is ready, Running if besides
        programs run. Failed if a task failed or the whole cluster is unusable.
        """
        if self.suspended:
            return Phase.SUSPENDED
        if not self.reason and self.exit_code is not None:
            return Phase.FAILED if self.exit_code else Phase.SUCCEEDED
        phases = {task.phase for task in self.tasks}
        if self.reason or Phase.FAILED in phases:
            return Phase.FAILED
        if not phases:  # for a moment while the cluster is removed
            return Phase.UNKNOWN
        for phase in (Phase.UNKNOWN, Phase.PENDING, Phase.STARTING, Phase.RUNNING):
            if phase in phases:
                return phase
        return Phase.READY
