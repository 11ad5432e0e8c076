"""Tasks of a local cluster: those that follow each other on a port, and those whose port was open to others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tfk8s.backends.local.loopback import sockets
from tfk8s.backends.local.port_handover import PortHandover
from tfk8s.backends.local.task_processes import ServerProcess, TaskProcess, TaskSettings
from tfk8s.core.status import Phase
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.task.config import TaskConfig


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


@pytest.mark.programs
@pytest.mark.parametrize(
    ("confined", "trouble", "last"),
    [
        (True, "10.0.0.7 connected", (Phase.FAILED, "10.0.0.7 connected")),
        (True, "", (Phase.READY, "")),
        (False, "10.0.0.7 connected", (Phase.READY, "")),  # of a network of the cluster's own
    ],
)
def test_a_task_to_which_another_machine_connected_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, confined: bool, trouble: str, last: tuple[Phase, str]
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf 1 >&3\nexec sleep 60\n")  # a server that says that it listens
    python.chmod(0o755)
    monkeypatch.setattr(sockets, "trouble", lambda port: trouble if port == 2222 else "another port")
    loop, phases = Loop(), []

    def on_change(task: TaskProcess) -> None:
        phases.append((task.phase, task.reason))
        if task.phase is not Phase.STARTING:
            server.stop()
            loop.stop()

    server = ServerProcess(loop, settings(tmp_path, python, confined=confined), None, on_change)
    server.start()
    loop.run()
    assert phases == [(Phase.STARTING, ""), last]


@pytest.mark.programs
def test_what_another_start_can_not_mend_is_not_retried(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@" >&2\nexit 2\n')
    python.chmod(0o755)
    loop = Loop()
    given = settings(tmp_path, python, preload=("own_operations",), folder="/jobs")
    server = ServerProcess(loop, given, None, lambda task: loop.stop() if task.phase is Phase.FAILED else None)
    server.start()
    loop.run()
    assert server.has_given_up
    assert server.describe()["has_given_up"]
    assert server.reason.startswith("exited with 2: ")
    assert "--preload=own_operations --preload-folder=/jobs" in given.log.read_text()
    server.restart()  # as `tfk8s restart` does
    assert (server.phase, server.has_given_up) == (Phase.STARTING, False)
    loop.run()


def settings(home: Path, python: Path, **more: Any) -> TaskSettings:
    given = {
        "config": TaskConfig({"worker": {0: "localhost:2222"}}, "worker", 0), "environment": {}, "preload": (),
        "folder": "", "log": home / "log", "progress": home / "progress", "python": str(python), **more,
    }  # fmt: skip
    return TaskSettings(**given)
