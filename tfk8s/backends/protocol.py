"""Where clusters live: the protocol that every backend fulfils, and the choice of one.

A backend plans, applies, scales, observes, lists, tells of events, reads logs, runs scripts, dials a task, restarts
and deletes. All that users see beyond that (waiting, probing, devices, `connect`, retries, panels) is built on these,
once for all backends.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # commands that need no backend import this module all the same
    from tfk8s.backends.options import BackendOptions
    from tfk8s.core.events import Event
    from tfk8s.core.plan import Plan
    from tfk8s.core.spec import JobFile, Task
    from tfk8s.core.status import ClusterStatus
from tfk8s.core.script import LogLine, Outcome, Script


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


class Backend(Protocol):
    """Where clusters live.

    Every method raises an error of `tfk8s.errors`, and `NoSuchCluster` for a name that no cluster has.
    """

    name: str
    flags: str  # what a command needs to choose it again, for advice: " --local", " --namespace ml" or nothing

    def apply(self, job_file: JobFile) -> bool:
        """Make the cluster so; return whether anything changed. Waits for no task."""
        ...

    def plan(self, job_file: JobFile) -> Plan:
        """Return what `apply` would change; change nothing."""
        ...

    def scale(self, name: str, tasks: Mapping[str, int]) -> bool:
        """Give jobs so many tasks each, and start all tasks anew; return whether anything changed. Waits for none.

        The cluster has these jobs, and each number is 1 or more.
        """
        ...

    def observe(self, name: str) -> ClusterStatus:
        """Return what is there now, in bounded time."""
        ...

    def observer(self, name: str) -> AbstractContextManager[Observer]:
        """Observe a cluster, from entering the context manager on."""
        ...

    def clusters(self) -> list[ClusterStatus]:
        """Return all clusters of this user, by name."""
        ...

    def events(self, name: str, *, follow: bool) -> Iterator[Event]:
        """Yield what happened, in the order of time; then, with `follow`, what happens, until the cluster is gone."""
        ...

    def logs(self, name: str, tasks: Sequence[Task], *, follow: bool, tail: int | None) -> Iterator[LogLine]:
        """Yield what tasks wrote: the last `tail` lines of each (None: all), then, with `follow`, each new one."""
        ...

    def run(self, name: str, script: Script) -> Outcome:
        """Run a session script with this process' standard streams; return how it ended.

        SIGINT and SIGTERM of this process reach the script.

        Raises:
            TaskError: a task was lost and the script could not go on.
        """
        ...

    def start(self, name: str, script: Script) -> str:
        """Start a session script that goes on without this process; return its name.

        Raises:
            InvalidInput: here, a script belongs to the process that runs it; as for the following two.
        """
        ...

    def show(self, name: str, script: str, *, follow: bool, tail: int | None) -> int:
        """Pass what a script wrote on to this process' standard streams; return 0.

        With `follow`, go on to its end, and return its exit code.
        """
        ...

    def stop(self, name: str, script: str) -> None:
        """End a script, and remove it and what it wrote."""
        ...

    def locator(self, name: str) -> BackendOptions | None:
        """Return the options by which another process finds the cluster; None if its tasks are reached directly."""
        ...

    def dial(self, name: str, task: Task) -> socket.socket:
        """Return a stream connected to a task's server."""
        ...

    def restart(self, name: str, task: Task | None) -> None:
        """Start a task's server, or all of them, anew. Waits for none."""
        ...

    def delete(self, name: str) -> None:
        """Remove all that `apply` made, and wait until it is gone."""
        ...
