"""The lost tasks of a local cluster: each loss is reported once to the scripts that run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tfk8s.backends.local.task_processes import TaskProcess
from tfk8s.core.status import Phase
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.sessions.task_events import TaskEvent, lost
from tfk8s.sessions.timing import TIMING


class Losses:
    """Reports tasks that have ended, and those that a signal has stopped: sessions wait for them without an end.

    Args:
        tasks: returns the tasks that sessions use.
        are_scripts: returns whether a script runs.
        send: sends an event to the scripts that run.
    """

    def __init__(
        self,
        loop: Loop,
        tasks: Callable[[], Iterable[TaskProcess]],
        are_scripts: Callable[[], bool],
        send: Callable[[TaskEvent], None],
    ) -> None:
        self._loop, self._tasks, self._are_scripts, self._send = loop, tasks, are_scripts, send
        self._lost: set[str] = set()
        self._previously_stopped: set[str] = set()  # at the last poll
        self._is_polling = False

    def note(self, task: TaskProcess) -> None:
        """Take the change of the phase of a task that sessions use."""
        if task.phase is Phase.READY:
            self._lost.discard(task.name)
        elif task.phase is Phase.FAILED and task.name not in self._lost:
            self._lost.add(task.name)
            self._send(lost(task.name, task.reason))

    def poll(self) -> None:
        """Poll for stopped tasks, as long as scripts run.

        Earlier results are forgotten, so that a script that has just started learns of all stopped tasks.
        """
        self._lost -= self._previously_stopped
        self._previously_stopped = set()
        if not self._is_polling:
            self._is_polling = True
            self._loop.after(TIMING.stopped_interval, self._poll_stopped)

    def _poll_stopped(self) -> None:
        stopped = {task.name: reason for task in self._tasks() if (reason := task.stopped_reason())}
        for name, reason in stopped.items():
            if name in self._previously_stopped and name not in self._lost:  # at two polls in a row
                self._lost.add(name)
                self._send(lost(name, reason))
        self._lost -= self._previously_stopped - stopped.keys()
        self._previously_stopped = set(stopped)
        self._is_polling = self._are_scripts()
        if self._is_polling:
            self._loop.after(TIMING.stopped_interval, self._poll_stopped)
