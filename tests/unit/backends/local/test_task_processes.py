"""Tasks of a local cluster that follow each other on a port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tfk8s.backends.local.port_handover import PortHandover


class Task:
    """A task, whose process has an id until its end."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid

    def start(self) -> None:
        """Start the process."""
        self.pid = 4711

    def stop(self, reason: str) -> None:
        """Begin to end the process."""
        assert reason == "removed by `tfk8s scale`"


class Timers:
    """A loop whose timers are due when the test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Keep the callback."""
        del seconds
        self.due.append(callback)

    def run(self) -> None:
        """Call all callbacks."""
        due, self.due = self.due, []
        for callback in due:
            callback()


def test_new_task_waits_for_the_end_of_every_task_that_was_removed() -> None:
    loop, removed, added = Timers(), Task(1), Task(None)
    ports: Any = PortHandover(cast("Any", loop))
    ports.replace([removed], [])
    ports.replace([], [added])
    loop.run()
    assert added.pid is None
    removed.pid = None
    loop.run()
    assert added.pid == 4711
    assert not loop.due
