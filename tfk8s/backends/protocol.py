"""The protocol of backends, which run clusters.

A backend plans, applies, scales, observes, lists, yields events and logs, runs scripts, dials a task, runs commands
beside a task, serves TensorBoard, restarts and deletes. Everything else (waiting, probing, devices, `connect`, retries,
panels) is built on these methods, once for all backends.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # commands that need no backend import this module too
    from pathlib import Path

    from tfk8s.backends.options import BackendOptions
    from tfk8s.backends.stacks import Stacks
    from tfk8s.core.events import Event
    from tfk8s.core.plan import Plan, Scaling
    from tfk8s.core.spec import JobFile, Task
    from tfk8s.core.status import ClusterStatus
    from tfk8s.core.storage.volumes import KeptClaim
from tfk8s.core.script import LogLine, LogOptions, Outcome, Script

NODE_TIMEOUT = 900.0  # replaces the default limit of a wait while a node is started, or pulls an image


class Observer(Protocol):
    """A cluster under observation."""

    def status(self) -> ClusterStatus:
        """Return the current status, as `Backend.observe` does, at little cost for callers that poll."""
        ...

    def why_lost(self, task: Task, symptom: str) -> str:
        """Return why a task was lost, or the symptom if the backend knows no more. May wait until it knows.

        Raises:
            Tfk8sError: the cluster can't be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class PollingObserver:
    """The observer of a backend that is polled at little cost.

    Attributes:
        status, why_lost: as `Observer` has them.
    """

    status: Callable[[], ClusterStatus]
    why_lost: Callable[[Task, str], str] = lambda task, symptom: symptom  # noqa: ARG005 - part of the protocol


class TensorBoard(Protocol):
    """A process or a pod that serves TensorBoard.

    Attributes:
        folder: the folder of event files.
    """

    folder: str

    def require_running(self) -> None:
        """Raise a Tfk8sError if the server has ended."""
        ...

    def show_messages(self) -> None:
        """Write what the server has written elsewhere."""
        ...


class Backend(Protocol):
    """Runs clusters.

    Every method raises an error of `tfk8s.errors`, and `NoSuchCluster` for a name that no cluster has.

    Attributes:
        name: "local", "kubernetes" or "addresses".
        flags: the options that choose this backend, for advice: " --local", " --namespace ml" or "".
    """

    name: str
    flags: str

    def apply(self, job_file: JobFile) -> bool:
        """Create the cluster or change it; return whether anything changed. Does not wait for tasks."""
        ...

    def plan(self, job_file: JobFile) -> Plan:
        """Return the changes that `apply` would make; change nothing."""
        ...

    def scale(self, name: str, tasks: Mapping[str, int]) -> Scaling:
        """Set the numbers of tasks; return whether that restarts the other tasks. Does not wait for tasks.

        Args:
            name: the cluster's.
            tasks: the number of tasks, 1 or more, of some of the cluster's jobs.
        """
        ...

    def observe(self, name: str) -> ClusterStatus:
        """Return the current status, in bounded time."""
        ...

    def observer(self, name: str) -> AbstractContextManager[Observer]:
        """Observe a cluster, from entering the context manager on."""
        ...

    def clusters(self) -> list[ClusterStatus]:
        """Return the status of all clusters of this user, by name."""
        ...

    def events(self, name: str, *, follow: bool) -> Iterator[Event]:
        """Yield past events by time; then, with `follow`, each new event until the cluster is gone."""
        ...

    def logs(self, name: str, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        """Yield the chosen lines of each task's log; then, with `follow`, each new line."""
        ...

    def run(self, name: str, script: Script) -> Outcome:
        """Run a session script with this process' standard streams; return how it ended.

        SIGINT and SIGTERM of this process reach the script.

        Raises:
            TaskError: a task was lost, and the script could not continue.
        """
        ...

    def start(self, name: str, script: Script) -> str:
        """Start a session script that runs without this process; return its name.

        Raises:
            InvalidInput: this backend's scripts end with the process that runs them. So do `show`, `script_log` and
                `stop`.
        """
        ...

    def show(self, name: str, script: str, options: LogOptions) -> int:
        """Write a script's output to this process' standard streams; return 0.

        With `follow`, continue until the script's end, and return its exit code.

        Raises:
            InvalidInput: the options ask for the log before a restart: scripts never restart.
        """
        ...

    def script_log(self, name: str, script: str) -> Iterator[str]:
        """Yield the lines of a script's output and errors so far."""
        ...

    def stop(self, name: str, script: str) -> None:
        """Stop a script, and delete it and its output."""
        ...

    def locator(self, name: str) -> BackendOptions | None:
        """Return the options by which another process finds the cluster; None if its tasks are reached directly."""
        ...

    def dial(self, name: str, task: Task) -> socket.socket:
        """Return a stream connected to a task's server."""
        ...

    def free_gpus(self) -> str:
        """Return the free GPUs by node, as a text; "" if this backend has no nodes, or may not list them."""
        ...

    def restart(self, name: str, task: Task | None) -> bool:
        """Restart a task, or (None) all tasks; return whether the status shows the restart. Does not wait.

        A program takes those of its restart scope along if the backend can restart programs together.
        """
        ...

    def execute(self, name: str, task: Task, command: Sequence[str]) -> int:
        """Run a command beside a task's server, with this process' standard streams; return its exit code.

        The command gets a terminal if this process has one.

        Raises:
            TaskUnreachable: the task does not run.
        """
        ...

    def stacks(self, name: str, chosen: Sequence[str]) -> list[Stacks]:
        """Return what tasks and scripts do now, in the order of their names, in bounded time.

        Args:
            name: the cluster's.
            chosen: the names of tasks ("worker/1"), and of scripts as the status has them.
        """
        ...

    def tensorboard(
        self, name: str, *, folder: str | None, requirements: Path | None, token: str, port: int
    ) -> AbstractContextManager[TensorBoard]:
        """Serve TensorBoard in a `with`; at its end, no process and no pod is left.

        Args:
            name: the cluster's.
            folder: the folder of event files; None is the backend's default.
            requirements: a file for `pip install -r` in a pod.
            token: the page's path.
            port: a free port of this machine.

        Raises:
            InvalidInput: TensorBoard is missing, or there is no such folder.
            ClusterError: the pod can't start.
        """
        ...

    def end_programs(self, name: str, jobs: Sequence[str], *, succeeded: bool) -> None:
        """End the programs that still run after the end of their run, if the backend has not. Does not wait.

        Args:
            name: the cluster's.
            jobs: the jobs of the programs.
            succeeded: whether the run has succeeded.
        """
        ...

    def delete(self, name: str, *, delete_claims: bool = False) -> list[str]:
        """Delete all that `apply` created, and wait until it is gone; return the names of the claims that are kept.

        Args:
            name: the cluster's. With `delete_claims`, the cluster may be removed already.
            delete_claims: whether to delete the claims that `apply` made, with their data.
        """
        ...

    def claims(self) -> list[KeptClaim]:
        """Return the claims that `apply` made, also those of clusters that were removed."""
        ...
