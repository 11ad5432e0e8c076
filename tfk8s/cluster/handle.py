"""A handle on a cluster, the same for every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

from tfk8s import spans
from tfk8s.backends import devices
from tfk8s.backends.devices import TaskDevices
from tfk8s.backends.protocol import Backend
from tfk8s.cluster import program_files, removal, saved_logs, scaling
from tfk8s.cluster.connection import ClusterConnection
from tfk8s.cluster.history_recorder import HistoryRecorder
from tfk8s.cluster.program_run import wait_for_programs
from tfk8s.cluster.readiness import TIMEOUT, OnChange, wait_until_ready
from tfk8s.cluster.submitting import SubmittingCluster
from tfk8s.cluster.suspending import SuspendableCluster, note_suspension
from tfk8s.core.events import Event
from tfk8s.core.plan import Scaling
from tfk8s.core.script import LogOptions, Logs, shown
from tfk8s.core.spec import JobFile
from tfk8s.core.status import ClusterStatus, TaskStatus
from tfk8s.core.task_names import choose, parse_task, select
from tfk8s.errors import ClusterError, InvalidInput, NoSuchCluster

if TYPE_CHECKING:
    import tensorflow as tf

    from tfk8s.backends.stacks import Stacks
    from tfk8s.backends.usage import Usage
    from tfk8s.sessions.forward import Forward
    from tfk8s.sessions.session import Prepare, RecoveringSessions

MAX_RECOVERIES = 10  # as `tfk8s.session` has it, whose module is not imported for that


def _without_feature(name: str) -> ModuleType:
    raise ClusterError(f"this handle has no {name}", help="tfk8s.connect returns one that has")


class Cluster(SuspendableCluster, SubmittingCluster):
    """A handle on a cluster, as `tfk8s.up` and `tfk8s.connect` return it.

    Leaving its `with` removes the cluster if `up` created it, unless `up` was asked to keep it or other scripts still
    run in it. Any other cluster stays.

    Attributes:
        name, backend, recorder: the cluster's name, what runs the cluster, and what adds commands to the history.
        created, changed: whether the handle created the cluster, and whether it created or changed the cluster.
        features: returns the module of a feature that a method needs.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        *,
        keep: bool = True,
        features: Callable[[str], ModuleType] = _without_feature,
    ) -> None:
        self.backend, self.name, self.features = backend, name, features
        self.created = self.changed = False
        self._applied: JobFile | None = None
        self._keep, self._exit_code, self._connection = keep, 0, ClusterConnection(backend, name)
        self.recorder = HistoryRecorder(backend, name)

    def status(self) -> ClusterStatus:
        """Return the cluster's state now."""
        return self.backend.observe(self.name)

    def tasks(self) -> tuple[TaskStatus, ...]:
        """Return the tasks' states now, in the order of the job file."""
        return self.status().tasks

    def devices(self) -> list[TaskDevices]:
        """Return each task's devices. A task that does not answer has no devices, and an error."""
        return devices.list_devices(self.backend, self.status())

    def apply(
        self,
        job_file: JobFile,
        *,
        lease: int | None = None,
        resumes: bool = True,
        environment: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Create the cluster, or change it to match its job file, without waiting for the tasks.

        `lease` is for a new cluster; a running one keeps its own, or has none. A suspended one needs `resumes`.
        `environment` has variables for the tasks of a new cluster, by job.

        Raises:
            InvalidInput: the backend rejects the job file, and has changed nothing; or a running cluster can't get the
                variables.
        """
        try:
            found, is_suspended = note_suspension(self.backend, self.status(), resumes=resumes)
            if environment:
                raise program_files.running_already(self.name, self.backend.flags)
        except NoSuchCluster:
            self.created, found, is_suspended = True, lease, False  # leaving the `with` removes a half created cluster
        lease = None if lease is None or found is None else int(found)
        self._applied = replace(program_files.with_variables(job_file, environment or {}), lease=lease)
        try:
            with spans.part("apply job file") as part:
                part[spans.TASKS] = sum(job.tasks for job in job_file.jobs)
                self.changed = self.backend.apply(self._applied) or is_suspended
        except InvalidInput:
            self.created = False
            raise
        self.created = self.created and self.changed  # another process may have been quicker
        self.recorder.applied(job_file, is_new=self.created)

    def wait(
        self, timeout: float = TIMEOUT, on_change: OnChange | None = None, *, without: Iterable[str] = ()
    ) -> ClusterStatus:
        """Wait until every server is ready and answers the master, and every program runs.

        Args:
            timeout: in seconds; the default is 15 minutes while a node starts or pulls an image.
            on_change: called with the first status, and with each status that differs from the one before.
            without: tasks not to wait for ("worker/3"). The others are then probed directly, not by the master.

        Returns:
            The status of the ready cluster, or of a cluster whose run of programs has ended.

        Raises:
            InvalidInput: an excluded task does not exist, or is the master.
            WaitTimeout: the text names the missing tasks, and the reasons.
            ClusterError: a task fails repeatedly, or the cluster is lost.
        """
        return wait_until_ready(self.backend, self.name, timeout, on_change, without=list(without))

    def wait_for_programs(self, timeout: float | None = None, on_change: OnChange | None = None) -> ClusterStatus:
        """Wait until the run of the programs has ended, and end the rest; return the status, with its `exit_code`."""
        return wait_for_programs(self.backend, self.name, timeout, on_change)

    def logs(self, tasks: Iterable[str] = (), **options: Any) -> Logs:
        """Return the output of tasks, to be printed or iterated over.

        Args:
            tasks: "worker/1", or "worker" for all tasks of the job; none means all.
            **options: the part of the output, as `LogOptions` has it; default: all so far.
        """
        chosen, part = select(tasks, [task.task for task in self.tasks()]), LogOptions(**options)
        return Logs(chosen, part, lambda: shown(self.backend.logs(self.name, chosen, part), part))

    def events(self, *, follow: bool = False) -> Iterator[Event]:
        """Return the cluster's events in the order of time; with `follow`, continue until the cluster is removed."""
        return self.backend.events(self.name, follow=follow)

    def exec(self, task: str, *command: str) -> int:
        """Run a command beside a task's server ("worker/1"), with this process' standard streams; return its exit code.

        Raises:
            InvalidInput: there is no such task.
            TaskUnreachable: the task does not run.
        """
        chosen = parse_task(task, [status.task for status in self.tasks()])
        return self.backend.inside.execute(self.name, chosen, command)

    def cp(self, source: str | Path, target: str | Path) -> None:
        """Copy a file or a folder from a task to this machine ("worker/1:PATH" to PATH), or the other way.

        Raises:
            InvalidInput: none of both names a task, or both do; or there is no such task or file.
            ClusterError: not everything was copied; says why.
        """
        self.features("file_copies").copy(self, str(source), str(target))

    def stacks(self, tasks: Iterable[str] = ()) -> list[Stacks]:
        """Return what tasks and running scripts do now; `tasks` as for `logs`, or names of scripts."""
        return self.backend.inside.stacks(self.name, choose(self.status(), tasks))

    def top(self, tasks: Iterable[str] = ()) -> list[Usage]:
        """Return what tasks and running scripts use, over a second; `tasks` as for `stacks`."""
        return self.backend.inside.usage(self.name, choose(self.status(), tasks))

    def restart(
        self, task: str | None = None, *, timeout: float | None = TIMEOUT, on_change: OnChange | None = None
    ) -> None:
        """Restart a task ("worker/1") or all tasks, and wait until the cluster is ready again.

        Args:
            task: the task; None is all.
            timeout: in seconds; None does not wait.
            on_change: as for `wait`.
        """
        with self.recorder.command("restart", [task] if task else []):
            scaling.restart(self.backend, self.name, task, timeout, on_change)

    def scale(
        self, tasks: Mapping[str, int], *, lose_variables: bool = False, timeout: float | None = TIMEOUT,
        on_change: OnChange | None = None,
    ) -> Scaling:  # fmt: skip
        """Change numbers of tasks (`{"worker": 8}`), and wait until all are ready; return what changed, if anything.

        The other tasks continue with their variables. In clusters with programs, all tasks restart. The job file stays
        unchanged.

        Args:
            tasks: the number of tasks by job, at least 1; the other jobs keep theirs.
            lose_variables: remove tasks even if they may hold variables: those of the job "ps".
            timeout: in seconds; None does not wait.
            on_change: as for `wait`.

        Raises:
            InvalidInput: a job does not exist, or can't have so many tasks; or a task that goes may hold variables.
        """
        with self.recorder.command("scale", [f"{job}={count}" for job, count in tasks.items()]):
            return scaling.scale(self.backend, self.name, tasks, timeout, on_change, lose_variables=lose_variables)

    @property
    def target(self) -> str:
        """The address for sessions of this process, valid until `close`, on 127.0.0.1 or as the job file gives it."""
        return self._connection.connect()[0]

    def forward(self, port: int = 0, without: Iterable[str] = ()) -> AbstractContextManager[Forward]:
        """Forward a loopback port to the master in a `with`, for sessions of other processes.

        Calls that wait for a lost task end with its name and the reason. Broken connections and lost tasks are logged.

        Args:
            port: the port; 0 is any free port.
            without: tasks that the sessions leave out ("worker/3").

        Raises:
            InvalidInput: the port is in use, or an excluded task does not exist or is the master.
            ClusterError: this user may not connect to the tasks.
        """
        return self._connection.forward(port, without)

    @overload
    def session(
        self, graph: tf.Graph | None = None, config: Any = None, *, without: Iterable[str] = ()
    ) -> tf.compat.v1.Session: ...
    @overload
    def session(
        self, graph: tf.Graph | None = None, config: Any = None, *, without: Iterable[str] = (),
        recover: Prepare, recoveries: int = MAX_RECOVERIES, timeout: float = TIMEOUT,
    ) -> RecoveringSessions: ...  # fmt: skip
    def session(
        self, graph: tf.Graph | None = None, config: Any = None, *, without: Iterable[str] = (),
        recover: Prepare | None = None, recoveries: int = MAX_RECOVERIES, timeout: float = TIMEOUT,
    ) -> tf.compat.v1.Session | RecoveringSessions:  # fmt: skip
        """Open a session on the master, in this process. With `recover`, open a new session after each loss.

        Args:
            graph: the graph to run; default: TensorFlow's default graph.
            config: a `tf.compat.v1.ConfigProto`.
            without: tasks to leave out ("worker/3"), to which no operation may be pinned.
            recover: called with each new session, to initialize its variables or restore them from a checkpoint.
            recoveries: the maximum number of new sessions.
            timeout: the seconds to wait each time until all tasks answer.

        Raises:
            InvalidInput: an excluded task does not exist, or is the master.
            TaskUnreachable: a task does not answer.
            VersionSkew: the tasks' versions of TensorFlow differ.
        """
        return self._connection.open_session(graph, config, without, recover, recoveries, timeout)

    def close(self) -> None:
        """Close the address of `target`; the cluster keeps running."""
        self._connection.close()

    def down(self, *, save_logs: str | Path | None = None, delete_claims: bool = False) -> list[str]:
        """Remove the cluster, and wait until it is gone; return the names of the claims that are kept.

        First write its logs to the folder `save_logs`, if given. `delete_claims` deletes the claims that `up` made.
        """
        with self.recorder.command("down"):
            if save_logs is not None:
                with spans.part("save logs"):
                    saved_logs.save_logs(self.backend, self.name, Path(save_logs))
            self.close()
            with spans.part("remove cluster"):
                return self.backend.delete(self.name, delete_claims=delete_claims)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if self._applied and not self._keep:
            removal.leave(self.backend, self._applied, error, self._exit_code, created=self.created)

    def __repr__(self) -> str:
        return f"<tfk8s.Cluster {self.name!r} ({self.backend.name})>"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        from tfk8s.cluster.html_table import html_table

        return html_table(self.status)
