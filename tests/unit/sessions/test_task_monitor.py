"""Servers that go away, come back, or only end a connection."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from tfk8s import polling
from tfk8s import testing as fake_backend
from tfk8s.errors import BackendUnreachable, TaskUnreachable, Tfk8sError
from tfk8s.sessions import task_monitor
from tfk8s.sessions.task_monitor import TaskMonitor
from tfk8s.task import wire


class Task:
    """Stands for a task's server.

    Attributes:
        incarnation: what it answers; a server that was started anew has another.
        trouble: why it can't be connected to.
        held: the servers' ends of connections.
    """

    def __init__(self) -> None:
        self.incarnation = 1
        self.trouble: Tfk8sError | None = None
        self.held: list[socket.socket] = []
        self.dials = 0

    def dial(self) -> socket.socket:
        self.dials += 1
        if self.trouble:
            raise self.trouble
        here, there = socket.socketpair()
        device = fake_backend._field(2, b"CPU") + bytes([6 << 3 | 1]) + self.incarnation.to_bytes(8, "little")
        answer = fake_backend._field(1, device)
        there.sendall(fake_backend._frame(b"\0" + struct.pack(">I", len(answer)) + answer))
        self.held.append(there)
        return here

    def drop(self) -> None:
        self.held.pop().close()


def until(condition: Callable[[], bool]) -> None:
    polling.wait_until(condition, "a condition of the test", 20)


def until_held(watched: TaskMonitor, task: Task) -> None:
    """Wait until a connection is watched, besides the pipe that ends it all."""
    until(lambda: len(task.held) == 1 and len(watched._selector.get_map()) == 2)


def watching(task: Task) -> TaskMonitor:
    """Watch a task that need give no sign of life."""
    return TaskMonitor({"worker/0": task.dial}, silent=1 << 30)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[Task]:
    monkeypatch.setattr(task_monitor, "_AGAIN_SECONDS", 0.005)
    task = Task()
    yield task
    for one in task.held:
        one.close()


def told(watched: TaskMonitor) -> dict[str, str]:
    """Return what is told next."""
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([watched.news], [], [], 20)[0]
        line += os.read(watched.news, 1)
    news: dict[str, str] = json.loads(line)
    return news


REFUSED = TaskUnreachable("worker/0 does not answer at there: Connection refused")


def test_a_server_that_ends_is_told_at_once(task: Task) -> None:
    with watching(task) as watched:
        until_held(watched, task)
        task.trouble = REFUSED
        task.drop()
        assert told(watched) == {"task": "worker/0", "reason": "does not answer at there: Connection refused"}


def test_a_server_that_stays_away_is_told_once(task: Task) -> None:
    with watching(task) as watched:
        until_held(watched, task)
        task.trouble = REFUSED
        task.drop()
        told(watched)
        before = task.dials
        until(lambda: task.dials > before + 3)
        assert not select.select([watched.news], [], [], 0)[0]


def test_a_server_that_was_started_anew_meanwhile_is_told(task: Task) -> None:
    with watching(task) as watched:
        until_held(watched, task)
        task.incarnation = 2
        task.drop()
        assert told(watched) == {"task": "worker/0", "reason": "its server was started anew"}
        assert told(watched) == {"task": "worker/0", "reason": "", "anew": True}


def test_a_server_that_ends_a_connection_only_is_not_lost(task: Task) -> None:
    with watching(task) as watched:
        until_held(watched, task)
        task.drop()
        until_held(watched, task)
        task.trouble = REFUSED
        task.drop()
        assert told(watched)["reason"].endswith("Connection refused")


def test_a_lost_server_that_comes_back_can_be_lost_again(task: Task) -> None:
    with watching(task) as watched:
        for incarnation in (2, 3):
            until_held(watched, task)
            task.trouble = REFUSED
            task.drop()
            assert told(watched)["reason"].endswith("Connection refused")
            task.incarnation, task.trouble = incarnation, None
            assert told(watched) == {"task": "worker/0", "reason": "", "anew": True}


def test_who_knows_more_of_a_loss_tells_it(task: Task) -> None:
    with TaskMonitor({"worker/0": task.dial}, 1 << 30, lambda task, seen: f"{task}: evicted, not {seen!r}") as watched:
        until_held(watched, task)
        task.trouble = REFUSED
        task.drop()
        assert told(watched)["reason"] == "worker/0: evicted, not 'does not answer at there: Connection refused'"


@pytest.mark.parametrize("unseen", ["", BackendUnreachable("the API server does not answer")])
def test_a_loss_that_nobody_can_see_is_none(task: Task, unseen: str | Tfk8sError) -> None:
    asked: list[str] = []

    def explain(name: str, seen: str) -> str:
        asked.append(seen)
        if isinstance(unseen, Tfk8sError):
            raise unseen
        return unseen

    with TaskMonitor({"worker/0": task.dial}, silent=3, explain=explain) as watched:
        until(lambda: task_monitor.SILENCE in asked)
        task.held[0].sendall(wire.HEARTBEAT)
        task.trouble = REFUSED
        task.drop()
        until(lambda: "does not answer at there: Connection refused" in asked)
        assert not select.select([watched.news], [], [], 0)[0]


def test_a_broken_way_to_the_servers_loses_none(task: Task) -> None:
    with watching(task) as watched:
        until_held(watched, task)
        task.trouble = BackendUnreachable("the API server does not answer")
        task.drop()
        until(lambda: task.dials > 3)
        task.trouble = REFUSED
        assert told(watched)["reason"].endswith("Connection refused")


def test_a_server_that_never_answered_is_not_lost(task: Task) -> None:
    task.trouble = REFUSED
    with watching(task) as watched:
        until(lambda: task.dials > 3)
        assert not select.select([watched.news], [], [], 0)[0]


def test_a_server_that_gives_no_sign_of_life_is_lost_until_it_does(task: Task) -> None:
    with TaskMonitor({"worker/0": task.dial}, silent=20) as watched:
        reason = "does not answer: its server is stopped, or its machine or the network is gone"
        assert told(watched) == {"task": "worker/0", "reason": reason}
        assert task.held[0].recv(1000).endswith(wire.HEARTBEAT)
        with contextlib.suppress(OSError):  # given up by now: then a new connection tells
            task.held[0].sendall(wire.HEARTBEAT)
        assert told(watched) == {"task": "worker/0", "reason": ""}


def test_a_connection_without_a_sign_of_life_is_given_up(task: Task) -> None:
    with TaskMonitor({"worker/0": task.dial}, silent=2) as watched:
        assert told(watched)["reason"]
        until(lambda: len(task.held) > 1)


def test_where_nobody_listens_the_address_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        task_monitor.connect("ps/0", address).close()
    with pytest.raises(TaskUnreachable, match=f"^ps/0 does not answer at {address}: Connection refused$"):
        task_monitor.connect("ps/0", address)
