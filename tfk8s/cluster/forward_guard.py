"""Monitors a cluster's tasks beside a forward to its master, for sessions of other processes.

Those sessions are TensorFlow's own, and their processes, such as a notebook's, may know nothing of tfk8s. A call would
wait for ever for a master that is gone, or for a task that is stopped.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection

from tfk8s.backends.protocol import Backend
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import Tfk8sError
from tfk8s.sessions.active_calls import Call
from tfk8s.sessions.call_guard import AbortCalls, CallGuard
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.forward import Forward
from tfk8s.sessions.guard_thread import GuardThread
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.task_events import TaskChange, TaskEvent, lost
from tfk8s.sessions.task_monitor import TaskMonitor
from tfk8s.sessions.timing import Timing

MAX_TASKS = 256  # each is a connection, and a heartbeat a second, through the API server


class ForwardGuard:
    """In a `with`, reports lost tasks, and has the forward stand in for a lost master.

    Args:
        backend, name: the cluster.
        forward: leads to the cluster's master.
        on_event: is called, on another thread, with each change of a task.
        view: the tasks, as the sessions see them. With a view, calls that wait while a task is lost are aborted: nobody
            knows here which calls need the task. And a task that was restarted counts as lost until the master reaches
            it, which may take a minute.

    Attributes:
        monitor: reports the changes of the tasks.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        forward: Forward,
        on_event: Callable[[TaskEvent], object],
        view: ClusterView | None = None,
        timing: Timing | None = None,
    ) -> None:
        status = backend.observe(name)
        self._backend, self._name = backend, name
        self._forward, self._report, self._view = forward, on_event, view
        self._master = str(status.master)
        self._timing = timing or backend.timing
        tasks = monitored_tasks(status, view.without if view else ())
        self._stack = contextlib.ExitStack()
        observer = self._stack.enter_context(backend.observer(name))
        self.monitor = TaskMonitor(
            {label: functools.partial(backend.dial, name, task) for label, task in tasks.items()},
            lambda task, symptom: observer.why_lost(tasks[task], symptom),
            self._timing,
        )
        self._losses = LostTasks()
        self._guard = CallGuard(
            self._losses,
            view or ClusterView({}),
            AbortCalls(functools.partial(forward.abort_calls, min_age=self._timing.call_timeout), self._timing),
            active=lambda: {name: Call()} if view else {},
            notify=lambda _: None,
        )
        self._replaced: set[str] = set()  # restarted tasks that the master may not reach yet
        self._is_first_check = True
        self._thread = GuardThread(self, self.monitor.events)

    def __enter__(self) -> ForwardGuard:
        self.monitor.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.stop()
        self.monitor.__exit__(*error)
        self._stack.close()

    @property
    def check_interval(self) -> float | None:
        """The seconds until the next `check`; None while no task is lost."""
        return self._timing.heartbeat_interval if self._view and self._losses.lost_now else None

    def on_interrupt(self) -> None:
        """Do nothing: Ctrl-C is for the processes that have the sessions."""

    def on_event(self, event: TaskEvent) -> None:
        """Take note of a change of a task."""
        self._replaced.discard(event.task)
        if event.change is TaskChange.LOST and self._is_removed(event.task):
            self._report(event)  # a server that ends by itself ends its calls, and other sessions go on
        elif event.change is TaskChange.REPLACED and self._view and event.task != self._master:
            reason = f"{self._losses.reasons()[event.task]}; {self._master} can't reach the new server yet"
            self._guard.on_event(lost(event.task, reason))
            self._replaced.add(event.task)
        else:
            self._pass_on(event)

    def _is_removed(self, task: str) -> bool:
        """Return whether a task does not belong to the cluster any more."""
        with contextlib.suppress(Tfk8sError):
            return task not in {str(status.task) for status in self._backend.observe(self._name).tasks}
        return False

    def _pass_on(self, event: TaskEvent) -> None:
        is_lost = event.change is TaskChange.LOST
        self._guard.on_event(event if is_lost else TaskEvent(event.task, TaskChange.BACK))
        if event.task == self._master:
            self._forward.stand_in() if is_lost else self._forward.resume()
        self._report(event)

    def check(self, now: float) -> None:
        """Abort the calls whose time is up; report restarted tasks that the master reaches again."""
        if self._view is None:
            return
        if self._is_first_check:
            self._is_first_check = False
            for task in self._unreachable() or ():
                self._pass_on(lost(task, f"{self._master} can't reach it"))
                self._replaced.add(task)
        elif self._replaced and (unreachable := self._unreachable()) is not None:
            for task in sorted(self._replaced.difference(unreachable)):
                self._replaced.discard(task)
                self._pass_on(TaskEvent(task, TaskChange.REPLACED))
        self._guard.check(now)

    def _unreachable(self) -> Collection[str] | None:
        """Return the tasks that the master can't reach; None if the master itself can't be reached."""
        assert self._view is not None
        with contextlib.suppress(Tfk8sError):
            return self._view.unreachable()
        return None


def monitored_tasks(status: ClusterStatus, without: Collection[str] = ()) -> dict[str, Task]:
    """Return the tasks to monitor by name: those of sessions, or in a large cluster the master alone."""
    tasks = sorted((task.task for task in status.tasks if task.takes_part), key=str)
    if len(tasks) > MAX_TASKS:
        tasks = [status.master]
    return {str(task): task for task in tasks if str(task) not in without}
