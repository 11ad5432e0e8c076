"""What this process has been told of its cluster's tasks: by the runner, for all that asks why a call failed."""

from __future__ import annotations

import threading
from collections.abc import Mapping


class LostTasks:
    """The tasks that were lost since the script began, and those that are lost now. Threads may share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reasons: dict[str, str] = {}
        self._lost: set[str] = set()
        self._told_of = False

    def expect(self) -> None:
        """Note that somebody will tell of lost tasks, so that waiting for it makes sense."""
        self._told_of = True

    def lost(self, task: str, reason: str) -> None:
        """Note that a task is gone."""
        with self._changed:
            self._reasons[task] = reason
            self._lost.add(task)
            self._changed.notify_all()

    def back(self, task: str) -> None:
        """Note that a lost task answers again."""
        with self._changed:
            self._lost.discard(task)

    @property
    def lost_now(self) -> frozenset[str]:
        """The tasks that are lost and not back."""
        with self._changed:
            return frozenset(self._lost)

    def reasons(self, wait: float = 0.0) -> Mapping[str, str]:
        """Return why tasks were lost; waits so many seconds for the first, where somebody tells."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._reasons), wait if self._told_of else 0.0)
            return dict(self._reasons)


known = LostTasks()
