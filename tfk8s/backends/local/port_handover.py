"""The ports of tasks that end, for tasks that start."""

from __future__ import annotations

from collections.abc import Sequence

from tfk8s.backends.local.task_processes import ServerProcess
from tfk8s.sessions.forks.event_loop import Loop


class PortHandover:
    """Starts tasks once all tasks that were removed have ended, whose ports they may get."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._ending: list[ServerProcess] = []

    def replace(self, removed: Sequence[ServerProcess], added: Sequence[ServerProcess]) -> None:
        """End tasks; start others once these, and those of earlier calls, have ended."""
        for task in removed:
            task.stop("removed by `tfk8s scale`")
        self._ending += removed
        self._start(added)

    def _start(self, added: Sequence[ServerProcess]) -> None:
        self._ending = [task for task in self._ending if task.pid]
        if self._ending:
            self._loop.after(0.01, lambda: self._start(added))
            return
        for task in added:
            task.start()
