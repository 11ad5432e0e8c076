"""How this process reaches a cluster's master: an address, and sessions on it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, overload

from tfk8s.backends.protocol import Backend
from tfk8s.cluster import sidecar
from tfk8s.core import environment
from tfk8s.core.spec import EVALUATOR, Task
from tfk8s.core.task_names import parse_excluded
from tfk8s.errors import TaskUnreachable
from tfk8s.log import log
from tfk8s.sessions.forward import Forward
from tfk8s.sessions.lost_tasks import LostTasks

if TYPE_CHECKING:
    import tensorflow as tf

    from tfk8s.sessions.call_guard import SessionWatch
    from tfk8s.sessions.preflight import ClusterView
    from tfk8s.sessions.session import Prepare, RecoveringSessions

RECOVERIES, PATIENCE = 10, 120.0  # as tfk8s.session has them, whose module is not imported for that


def require_access(backend: Backend, name: str, task: Task) -> None:
    """Raise a ClusterError where this user has no way to a task; that it does not answer now is no such."""
    with contextlib.suppress(TaskUnreachable):
        backend.dial(name, task).close()


def _warn(line: str) -> None:
    log.warning("%s", line.removeprefix("tfk8s: "))


class ClusterConnection:
    """What a cluster's handle opens in this process; `close` ends it.

    Attributes:
        name: the cluster's.
        backend: where it lives.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        self.backend, self.name = backend, name
        self._news = LostTasks()
        self._lock = threading.RLock()  # sessions may be opened on several threads
        self._relay: sidecar.Sidecar | None = None
        self._watch: SessionWatch | None = None

    @contextlib.contextmanager
    def forward(self, port: int = 0, without: Iterable[str] = ()) -> Iterator[Forward]:
        """Lend a loopback address that leads to the master, for sessions of other processes.

        Their calls that wait while a task is lost are ended, with its name and the reason. Connections that break, and
        tasks that are lost and back, are logged.

        Args:
            port: where; 0 is any free port.
            without: tasks that the sessions leave out ("worker/3").

        Raises:
            InvalidInput: the port is in use, or there is no such task.
            ClusterError: this user has no way to the tasks.
        """
        from tfk8s.cluster.forward_guard import ForwardGuard

        def heard(task: str, why: str, anew: bool) -> None:
            back = "was started anew: sessions opened before are lost" if anew else "answers again"
            log.warning("%s %s", task, f"was lost: {why}" if why else back)

        master = self.backend.observe(self.name).master
        require_access(self.backend, self.name, master)
        with (
            Forward(lambda: self.backend.dial(self.name, master), port, log.warning) as forward,
            ForwardGuard(
                self.backend, self.name, forward, heard, unreached=self._view(without).unreached, without=without
            ),
        ):
            yield forward

    @property
    def target(self) -> str:
        """Where sessions of this process connect to, until `close`: "grpc://127.0.0.1:PORT", or a given address."""
        return self._reached()[0]

    def _reached(self) -> tuple[str, SessionWatch | None]:
        """Return the target, and who ends calls that would wait for ever."""
        with self._lock:
            if self._relay is None:
                locator = self.backend.locator(self.name)
                if locator is None:
                    return self.backend.observe(self.name).target, None
                from tfk8s.sessions.call_guard import SessionWatch

                view = self._view()  # before the relay, which nobody would close if this failed
                self._relay = sidecar.Sidecar(sidecar.command(locator, self.name))
                self._watch = SessionWatch(self._relay.news, self._news, view, _warn, self._relay.end_calls)
                self._watch.listen()
                self._watch.start()
            return self._relay.target, self._watch

    def _view(self, without: Iterable[str] = ()) -> ClusterView:
        """Return the tasks, the master first, and how to ask them.

        Raises:
            InvalidInput: a task to leave out is not there, or is the master.
        """
        from tfk8s.sessions.preflight import ClusterView

        status = self.backend.observe(self.name)
        tasks = {str(task.task): task for task in status.tasks if task.task.job != EVALUATOR}
        first = str(status.master)
        addresses = {first: tasks[first].address, **{name: task.address for name, task in tasks.items()}}
        absent = map(str, parse_excluded(without, [task.task for task in tasks.values()], status.master))
        return ClusterView(addresses, absent, dial=lambda name: self.backend.dial(self.name, tasks[name].task))

    @overload
    def session(
        self, graph: tf.Graph | None = None, config: Any = None, *, without: Iterable[str] = ()
    ) -> tf.compat.v1.Session: ...
    @overload
    def session(
        self,
        graph: tf.Graph | None = None,
        config: Any = None,
        *,
        without: Iterable[str] = (),
        recover: Prepare,
        recoveries: int = RECOVERIES,
        patience: float = PATIENCE,
    ) -> RecoveringSessions: ...
    def session(
        self,
        graph: tf.Graph | None = None,
        config: Any = None,
        *,
        without: Iterable[str] = (),
        recover: Prepare | None = None,
        recoveries: int = RECOVERIES,
        patience: float = PATIENCE,
    ) -> tf.compat.v1.Session | RecoveringSessions:
        """Open a session on the master, in this process, or sessions one after another, as `tfk8s.session` does.

        Args:
            graph: what the session runs; default: TensorFlow's default graph.
            config: a `tf.compat.v1.ConfigProto`.
            without: tasks to leave out ("worker/3"): nothing may be pinned to them.
            recover: is called with each new session, to initialize its variables or restore them from a checkpoint.
            recoveries: how often at most.
            patience: how many seconds to wait each time until all tasks answer.

        Raises:
            InvalidInput: a task to leave out is not there, or is the master.
            TaskUnreachable: a task does not answer.
            VersionSkew: the tasks have different versions of TensorFlow.
        """
        from tfk8s.sessions.session import open_session

        view = self._view(without)
        host = self.backend.observe(self.name).target.removeprefix("grpc://").rpartition(":")[0].strip("[]")
        os.environ.update(environment.without_proxy(os.environ, (*environment.LOOPBACK, host)))
        return open_session(self._reached, graph, config, view, self._news, recover, recoveries, patience)

    def close(self) -> None:
        """Close the loopback address behind `target`; the cluster goes on."""
        with self._lock:
            if self._relay is not None and self._watch is not None:
                self._watch.stop()
                self._relay.close()
                self._relay = self._watch = None
