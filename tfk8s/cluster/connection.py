"""The connection of this process to a cluster's master, for TensorFlow sessions."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tfk8s import platforms
from tfk8s.backends import devices
from tfk8s.backends.protocol import Backend
from tfk8s.core import environment
from tfk8s.core.addresses import LOOPBACK, SCHEME
from tfk8s.core.spec import Task
from tfk8s.core.task_names import parse_excluded
from tfk8s.errors import TaskUnreachable
from tfk8s.log import log
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.task.peers import dispatchers

if TYPE_CHECKING:
    import tensorflow as tf

    from tfk8s.cluster.sidecar import Sidecar
    from tfk8s.sessions.cluster.cluster_view import ClusterView
    from tfk8s.sessions.forward import Forward
    from tfk8s.sessions.guard_thread import GuardThread
    from tfk8s.sessions.session import Prepare, RecoveringSessions
    from tfk8s.sessions.task_events import TaskEvent


def require_access(backend: Backend, name: str, task: Task) -> None:
    """Raise a ClusterError if this user may not connect to a task. The task itself need not answer."""
    with contextlib.suppress(TaskUnreachable):
        backend.dial(name, task).close()


def _require_pipes() -> None:
    platforms.require_pipes(
        "sessions from this machine", f"submit runs scripts beside the tasks; or run tfk8s {platforms.in_container()}"
    )


def _warn(event: TaskEvent) -> None:
    log.warning("%s", event)


class ClusterConnection:
    """Connects this process to a cluster's master when first used, until `close`.

    Args:
        backend, name: the cluster.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend, self._name = backend, name
        self._lost_tasks = LostTasks()
        self._lock = threading.RLock()  # sessions may be opened on several threads
        self._sidecar: Sidecar | None = None
        self._guard: GuardThread | None = None
        self._forwards = contextlib.ExitStack()  # to the tasks of tf.data's service

    @contextlib.contextmanager
    def forward(self, port: int, without: Iterable[str]) -> Iterator[Forward]:
        """Forward a loopback port to the master, as `Cluster.forward` does."""
        _require_pipes()
        from tfk8s.backends.elastic_forward import forward_to_task
        from tfk8s.cluster.forward_guard import ForwardGuard

        status = self._backend.observe(self._name)
        devices.servers(self._backend, status)
        require_access(self._backend, self._name, status.master)
        with (
            forward_to_task(self._backend, status, log.warning, port=port) as forward,
            ForwardGuard(self._backend, self._name, forward, _warn, self._view(without)),
        ):
            yield forward

    def connect(self) -> tuple[str, GuardThread | None]:
        """Return the address for sessions of this process, and the thread that ends calls which would hang."""
        with self._lock:
            if self._sidecar is None:
                locator = self._backend.locator(self._name)
                if locator is None:
                    return self._backend.observe(self._name).target, None
                _require_pipes()
                from tfk8s.cluster import sidecar
                from tfk8s.sessions.call_guard import AbortCalls, CallGuard
                from tfk8s.sessions.guard_thread import GuardThread

                view = self._view()  # before the sidecar, which nobody would close if this failed
                self._sidecar = sidecar.Sidecar(sidecar.command(locator, self._name))
                self._lost_tasks.expect()
                rule = CallGuard(self._lost_tasks, view, AbortCalls(self._sidecar.abort_calls))
                self._guard = GuardThread(rule, self._sidecar.events)
                self._guard.take_signals()
                self._guard.start()
                self._watch_data_service(self._sidecar.abort_calls)
            return self._sidecar.target, self._guard

    def _watch_data_service(self, abort: Callable[[str], object]) -> None:
        """Abort calls that wait for a dispatcher or a worker of tf.data's service that does not come back.

        Args:
            abort: aborts the calls, with a reason.
        """
        from tfk8s.backends.elastic_forward import forward_to_task

        def end(name: str, reason: str) -> None:
            text = f"{name} was lost: {reason}"
            log.warning("%s; Ctrl-C ends a call that goes on", text)  # such as an iteration in this process
            abort(text)

        status = self._backend.observe(self._name)
        targets: dict[str, str] = {}
        self._forwards.callback(targets.clear)
        for task in status.tasks:
            if task.is_data:
                forward = forward_to_task(self._backend, status, log.debug, task.task)
                targets[task.address] = self._forwards.enter_context(forward).target.removeprefix(SCHEME)
        if targets:
            dispatchers.watch(log.warning, end, targets)

    def _view(self, without: Iterable[str] = ()) -> ClusterView:
        """Return the tasks, with the master first, and how to connect to them.

        Raises:
            InvalidInput: an excluded task does not exist, or is the master.
        """
        status = self._backend.observe(self._name)
        tasks = [task.task for task in devices.servers(self._backend, status) if task.takes_part]
        excluded = parse_excluded(without, tasks, status.master)
        excluded += [task.task for task in status.tasks if task.is_program]
        return devices.view(self._backend, status, map(str, excluded))

    def open_session(
        self,
        graph: tf.Graph | None,
        config: Any,
        without: Iterable[str],
        recover: Prepare | None,
        recoveries: int,
        timeout: float,
    ) -> tf.compat.v1.Session | RecoveringSessions:
        """Open a session on the master, as `Cluster.session` does."""
        from tfk8s.sessions.session import open_session

        view = self._view(without)
        host = self._backend.observe(self._name).target.removeprefix("grpc://").rpartition(":")[0].strip("[]")
        os.environ.update(environment.without_proxy(os.environ, (*LOOPBACK, host)))
        return open_session(self.connect, graph, config, view, self._lost_tasks, recover, recoveries, timeout)

    def close(self) -> None:
        """Close the connection; the cluster keeps running."""
        with self._lock:
            if self._sidecar is not None and self._guard is not None:
                self._guard.stop()
                self._sidecar.close()
                self._sidecar = self._guard = None
            self._forwards.close()
