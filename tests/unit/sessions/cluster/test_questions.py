"""Questions to servers that wait for other tasks, counted by servers that answer late or never."""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterator

import pytest
from fakes.tensorflow_server import refusal, response

from tfk8s.sessions.cluster import cluster_view
from tfk8s.sessions.cluster.cluster_view import MAX_OPEN, ClusterView
from tfk8s.sessions.cluster.questions import Questions
from tfk8s.task import wire

ANSWERS = refusal(3, "no")


class Servers:
    """Servers that answer those questions which name only tasks that they reach; they keep all others."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.asked: list[tuple[str, bytes]] = []
        self._streams: list[socket.socket] = []
        self.kept: list[socket.socket] = []

    def dial(self, task: str) -> socket.socket:
        here, there = socket.socketpair()
        self._streams += here, there
        there.sendall(wire.frame(wire.SETTINGS))
        send = here.sendall
        return _Stream(here, lambda data: (send(data), self._receive(task, there, data)))  # type: ignore[return-value]

    def _receive(self, task: str, there: socket.socket, data: bytes) -> None:
        if not data.startswith(wire.PREFACE):
            return
        self.asked.append((task, data))
        if any(f"/job:{one.replace('/', '/task:')}".encode() in data for one in self.silent - {task}):
            self.kept.append(there)
        else:
            there.sendall(ANSWERS)

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


class _Stream:
    def __init__(self, stream: socket.socket, sendall: object) -> None:
        self._stream, self.sendall = stream, sendall

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setattr(cluster_view, "REACH_TIMEOUT", 0.002)
    servers = Servers()
    yield servers
    servers.close()


def make_view(servers: Servers, tasks: int, questions: Questions | None = None) -> ClusterView:
    addresses = {f"worker/{index}": f"w{index}:1" for index in range(tasks)}
    return ClusterView(addresses, dial=servers.dial, is_elastic=False, questions=questions)


def test_ninety_seconds_of_polls_cost_five_questions_a_pair(servers: Servers) -> None:
    seconds = [0.0]
    view = make_view(servers, 4, Questions(clock=lambda: seconds[0]))
    servers.silent = {"worker/3"}
    for _ in range(90):
        assert view.unreachable_pairs() == {f"worker/{index}": ["worker/3"] for index in range(3)}
        seconds[0] += 1
    from_one = [data for task, data in servers.asked if task == "worker/0"]
    # For all tasks and for worker/3 at 0, 5, 15, 35 and 75 s; for each of the others once.
    assert sorted(from_one.count(data) for data in set(from_one)) == [1, 1, 1, 5, 5]
    assert len(servers.kept) == 3 * 10


def test_open_question_is_answered_later(servers: Servers) -> None:
    view = make_view(servers, 2)
    servers.silent = {"worker/1"}
    assert view.unreachable() == ["worker/1"]
    asked = len(servers.asked)
    for stream in servers.kept:
        stream.sendall(ANSWERS)
    assert view.unreachable() == []
    assert len(servers.asked) == asked


def test_many_lost_tasks_cost_few_questions(servers: Servers) -> None:
    view = make_view(servers, 200)
    servers.silent = {f"worker/{index}" for index in range(100, 200)}
    assert set(view.unreachable()) < servers.silent
    assert len(servers.kept) <= 2 * MAX_OPEN
    view.close_questions()


def test_broken_question_is_asked_after_a_pause_and_a_refused_connection_at_once(servers: Servers) -> None:
    seconds = [0.0]
    questions = Questions(clock=lambda: seconds[0])
    ask = functools.partial(questions.ask, "key", lambda: servers.dial("worker/0"), wire.CREATE_SESSION, 0.01)
    request = b"/job:worker/task:1"
    servers.silent = {"worker/1"}
    with pytest.raises(TimeoutError):
        ask(request)
    servers.kept[0].close()
    with pytest.raises((wire.ProbeError, ConnectionError)):
        ask(request)
    with pytest.raises(TimeoutError):
        ask(request)
    assert len(servers.asked) == 1
    seconds[0], servers.silent = 5.0, set()
    with pytest.raises(wire.GrpcError):
        ask(request)

    def refuse() -> socket.socket:
        raise ConnectionRefusedError

    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            questions.ask("other", refuse, wire.CREATE_SESSION, 0.01)


def test_answer_may_come_in_parts(servers: Servers) -> None:
    here, there = socket.socketpair()
    answer = response(b"abc")
    there.sendall(wire.frame(wire.SETTINGS) + answer[:10])
    questions = Questions()
    with pytest.raises(TimeoutError):
        questions.ask("key", lambda: here, wire.LIST_DEVICES, 0.01)
    there.sendall(answer[10:])
    assert questions.ask("key", lambda: here, wire.LIST_DEVICES, 0.01) == b"abc"
    there.close()
