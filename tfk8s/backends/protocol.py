"""The protocol of backends, which run clusters.

A backend has twelve methods that concern a whole cluster, and parts with further verbs. Everything else (waiting,
probing, devices, `connect`, retries, panels) is built on these methods, once for all backends.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:  # commands that need no backend import this module too
    from tfk8s.backends.options import BackendOptions
    from tfk8s.backends.parts import Detached, Files, History, Inside, Leases, Scripts, Shared, Suspending
    from tfk8s.core.events import Event
    from tfk8s.core.plan import Plan, Scaling
    from tfk8s.core.spec import JobFile, Task
    from tfk8s.core.status import ClusterStatus
    from tfk8s.errors import Tfk8sError
    from tfk8s.sessions.timing import Timing
from tfk8s.core.script import LogLine, LogOptions

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


class Backend(Protocol):
    """Runs clusters.

    Every method raises an error of `tfk8s.errors`, and `NoSuchCluster` for a name that no cluster has.

    Attributes:
        name: "local", "kubernetes" or "addresses", for people. Code asks for a part or for an attribute.
        flags: the options that choose this backend, for advice: " --local", " --namespace ml" or "".
        timing: the limits of calls to tasks.
    """

    name: str
    flags: str
    timing: Timing

    @property
    def scripts(self) -> Scripts:
        """The part that runs scripts."""
        ...

    @property
    def detached(self) -> Detached:
        """The part for scripts that outlive this process."""
        ...

    @property
    def inside(self) -> Inside:
        """The part that reaches into the processes of tasks."""
        ...

    @property
    def files(self) -> Files:
        """The part that copies files of tasks."""
        ...

    @property
    def leases(self) -> Leases:
        """The part that gives leases back."""
        ...

    @property
    def suspending(self) -> Suspending:
        """The part that suspends and resumes clusters."""
        ...

    @property
    def shared(self) -> Shared | None:
        """The part that shows what clusters share; None if they share nothing."""
        ...

    @property
    def history(self) -> History | None:
        """The part that finds the record of clusters; None if there is no record."""
        ...

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

    def restart(self, name: str, task: Task | None) -> bool:
        """Restart a task, or (None) all tasks; return whether the status shows the restart. Does not wait.

        A program takes those of its restart scope along if the backend can restart programs together.
        """
        ...

    def delete(self, name: str, *, delete_claims: bool = False) -> list[str]:
        """Delete all that `apply` created, and wait until it is gone; return the names of the claims that are kept.

        Args:
            name: the cluster's. With `delete_claims`, the cluster may be removed already.
            delete_claims: whether to delete the claims that `apply` made, with their data.
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

    def dial(self, name: str, task: Task) -> socket.socket:
        """Return a stream connected to a task's server."""
        ...

    def locator(self, name: str) -> BackendOptions | None:
        """Return the options by which another process finds the cluster; None if its tasks are reached directly."""
        ...


class Absent:
    """A part that a backend lacks: each method, whatever its arguments, is the same refusal.

    Args:
        observe: is called with the cluster's name, and raises a NoSuchCluster for a name that no cluster has.
        error: returns the refusal, from the method's name and the cluster's.
    """

    def __init__(self, observe: Callable[[str], object], error: Callable[[str, str], Tfk8sError]) -> None:
        self._observe, self._error = observe, error

    def __getattr__(self, method: str) -> Any:
        def refuse(cluster: str | JobFile, *_: object, **__: object) -> NoReturn:
            name = cluster if isinstance(cluster, str) else cluster.name
            self._observe(name)
            raise self._error(method, name)

        return refuse
