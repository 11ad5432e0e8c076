"""The lost tasks and the reasons, shared by the thread that detects losses and the code that explains failures."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping


class LostTasks:
    """The tasks that were lost since the script began, and those that are lost now. Threads may share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reasons: dict[str, str] = {}
        self._lost: set[str] = set()
        self._absent: set[str] = set()  # the lost ones in whose place no other server answers
        self._is_fed = False

    def expect(self) -> None:
        """Note that somebody reports losses, so that `reasons` waits for them."""
        self._is_fed = True

    def lost(self, task: str, reason: str) -> None:
        """Note that a task is lost."""
        with self._changed:
            self._reasons[task] = reason
            self._lost.add(task)
            self._absent.add(task)
            self._changed.notify_all()

    def back(self, task: str) -> None:
        """Note that a lost task answers again."""
        with self._changed:
            self._lost.discard(task)
            self._absent.discard(task)
            self._changed.notify_all()

    def replaced(self, task: str) -> None:
        """Note that another server answers in the place of a lost task."""
        with self._changed:
            self._absent.discard(task)
            self._changed.notify_all()

    @property
    def lost_now(self) -> frozenset[str]:
        """The tasks that are lost and not back."""
        with self._changed:
            return frozenset(self._lost)

    def reasons(self, wait: float = 0.0) -> Mapping[str, str]:
        """Return the reasons of all losses; wait so many seconds for the first, if somebody reports losses."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._reasons), wait if self._is_fed else 0.0)
            return dict(self._reasons)

    def absent(self, tasks: Collection[str], wait: float = 0.0) -> set[str]:
        """Return the tasks that are lost, without another server in their place; wait so many seconds for none."""
        with self._changed:
            self._changed.wait_for(lambda: self._absent.isdisjoint(tasks), wait)
            return self._absent.intersection(tasks)

    def wait_until_lost(self, task: str, seconds: float) -> str:
        """Block until a task has been lost for so many seconds; return the reason."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: task in self._lost)
                if not self._changed.wait_for(lambda: task not in self._lost, seconds):
                    return self._reasons[task]


of_script = LostTasks()  # the runner and `tfk8s.session`, which a script calls, share no other object
