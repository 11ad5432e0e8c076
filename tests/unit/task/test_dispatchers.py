"""The watch over dispatchers of tf.data's service: times and frames are fake, connections are real."""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tfk8s.task import wire
from tfk8s.task.peers.dispatchers import Dispatchers, is_alive, waiting_for_data, waits_for_data, workers_of

NAME = "the dispatcher of tf.data's service at 127.0.0.1:"
LOST = "has not answered for 300 s"


class Scene:
    """A dispatcher at the address of a connection of this process, looked at every ten seconds."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, port: int, waits: Callable[[int], object],
        forwards: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(threading.Thread, "start", lambda _: None)
        self.said: list[str] = []
        self.ends: list[tuple[str, str]] = []
        self.is_alive = True
        self.workers: list[str] = []
        self.lost: set[str] = set()
        self.looks: list[int] = []
        self._now, self._waits = 0, waits
        self._watched = Dispatchers(
            lambda text: self.said.append(text.replace(f"{NAME}{port}", "it")),
            lambda task, reason: self.ends.append((task.replace(f"{NAME}{port}", "it"), reason)),
            forwards,
            lambda address: self.is_alive and address not in self.lost,
            lambda _: self.workers,
            self._look,
            lambda: float(self._now),
        )
        self._watched.add(f"127.0.0.1:{port}")

    def _look(self) -> Any:
        self.looks.append(self._now)
        return {self._waits(self._now)} - {None}

    def check(self, until: int) -> None:
        for now in range(self._now + 10, until + 1, 10):
            self._now = now
            self._watched.check()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        yield server


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def test_an_iteration_that_waits_ends_by_name(monkeypatch: pytest.MonkeyPatch, server: socket.socket) -> None:
    scene = Scene(monkeypatch, port_of(server), lambda _: "one call")
    scene.check(100)
    assert (scene.said, scene.looks) == ([], [])
    scene.is_alive = False
    scene.check(110)
    assert scene.said == []
    scene.check(400)
    assert scene.said == ["it does not answer; an iteration that waits for it is ended within 5m"]
    assert scene.ends == []
    scene.check(410)
    assert (scene.ends, scene.looks) == ([("it", LOST)], [260, 410])


def test_an_iteration_that_goes_on_is_left_alone(monkeypatch: pytest.MonkeyPatch, server: socket.socket) -> None:
    calls = itertools.count()
    scene = Scene(monkeypatch, port_of(server), lambda _: next(calls))
    scene.is_alive = False
    scene.check(2000)
    assert scene.ends == []


def test_forwards_lead_to_those_that_tasks_alone_can_reach(
    monkeypatch: pytest.MonkeyPatch, server: socket.socket
) -> None:
    there = f"127.0.0.1:{port_of(server)}"
    forwards = {there: "localhost:1", "w:1": "localhost:2", "w:2": "localhost:3"}
    scene = Scene(monkeypatch, port_of(server), lambda _: "one call", forwards)
    scene.workers = ["w:1", "w:2", "of:another"]
    scene.check(100)
    scene.lost = {"localhost:2", "of:another", there}
    scene.check(500)
    assert scene.ends == [("a worker of tf.data's service at w:1", "has not answered for 300 s")]
    forwards.clear()
    scene.check(1000)
    assert len(scene.ends) == 1
    unknown = Scene(monkeypatch, port_of(server), lambda _: "one call", {})
    unknown.is_alive = False
    unknown.check(1000)
    assert unknown.ends == []


def test_a_process_that_waits_for_no_data_is_left_alone(monkeypatch: pytest.MonkeyPatch, server: socket.socket) -> None:
    scene = Scene(monkeypatch, port_of(server), lambda now: "a late call" if now > 1000 else None)
    scene.is_alive = False
    scene.check(1200)
    assert scene.ends == []
    scene.check(1300)
    assert scene.ends


def test_a_dispatcher_that_is_back_has_all_its_time_again(
    monkeypatch: pytest.MonkeyPatch, server: socket.socket
) -> None:
    scene = Scene(monkeypatch, port_of(server), lambda _: "one call")
    for end in (200, 400, 600):
        scene.is_alive = False
        scene.check(end)
        scene.is_alive = True
        scene.check(end + 10)
    assert scene.ends == []
    assert scene.said[1] == "it answers again"
    assert len(scene.said) == 6


def test_an_iteration_that_waits_for_a_worker_ends_by_name(
    monkeypatch: pytest.MonkeyPatch, server: socket.socket
) -> None:
    scene = Scene(monkeypatch, port_of(server), lambda _: "one call")
    scene.workers = ["127.0.0.1:1", "127.0.0.2:1"]
    scene.check(100)
    scene.lost = {"127.0.0.2:1"}
    scene.check(500)
    worker = "a worker of tf.data's service at 127.0.0.2:1"
    assert scene.said == [f"{worker} does not answer; an iteration that waits for it is ended within 5m"]
    assert scene.ends == [(worker, LOST)]


def test_a_dispatcher_names_its_workers(server: socket.socket) -> None:
    answer = b"".join(wire.field(1, wire.field(1, name)) for name in ("w0:1", "w1:1")) + wire.field(2, 7)
    assert workers_that_are_told(server, answer) == ["w0:1", "w1:1"]
    assert workers_that_are_told(server, b"nonsense") == []
    assert workers_of(f"127.0.0.1:{port_of(server)}", 0.02) == []


def workers_that_are_told(server: socket.socket, message: bytes) -> list[str]:
    """Return the workers that are read from a serialized answer of a dispatcher."""

    def answer() -> None:
        stream, _ = server.accept()
        with stream:
            stream.recv(1 << 10)
            stream.sendall(wire.data_frames(1, wire.grpc_message(message)))
            stream.sendall(wire.frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, 1, b""))

    thread = threading.Thread(target=answer)
    thread.start()
    found = workers_of(f"127.0.0.1:{port_of(server)}", 5)
    thread.join()
    return found


def test_only_connections_to_a_silent_dispatcher_end(monkeypatch: pytest.MonkeyPatch, server: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        streams = [socket.create_connection(("127.0.0.1", port_of(one))) for one in (server, other)]
        scene = Scene(monkeypatch, port_of(server), lambda _: None)
        scene.check(100)
        scene.is_alive = False
        scene.check(200)
        for stream, has_ended in zip(streams, (True, False), strict=True):
            with stream:
                stream.settimeout(0.05)
                try:
                    assert (stream.recv(1) == b"") is has_ended
                except TimeoutError:
                    assert not has_ended


def test_a_server_is_alive_if_its_transport_answers(server: socket.socket) -> None:
    def answer() -> None:
        stream, _ = server.accept()
        with stream:
            assert stream.recv(1 << 10).startswith(wire.PREFACE)
            stream.sendall(wire.HEARTBEAT)

    thread = threading.Thread(target=answer)
    thread.start()
    assert is_alive(f"localhost:{port_of(server)}", 5)
    thread.join()


def test_a_frozen_server_is_not_alive(server: socket.socket) -> None:
    assert not is_alive(f"127.0.0.1:{port_of(server)}", 0.02)
    server.close()
    for address in (f"127.0.0.1:{port_of_closed()}", "no-such-name.invalid:1", "nonsense"):
        assert not is_alive(address, 0.02)


def port_of_closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return port_of(server)


# ---- what waits for data -------------------------------------------------------------------------------------------

ROOT = "/lib/tensorflow/python"


def call(file: str, inner: Callable[[], object], owner: object = None) -> Callable[[], object]:
    """Return a function of a file of TensorFlow that calls another one; `owner` is its `self`."""
    scope: dict[str, Any] = {"inner": inner}
    exec(compile("def outer(self=None):\n    return inner()", f"{ROOT}/{file}", "exec"), scope)  # noqa: S102
    return lambda: scope["outer"](owner)


def function(*operations: str, children: tuple[object, ...] = ()) -> object:
    nodes = [SimpleNamespace(op=name) for name in operations]
    return SimpleNamespace(cached_definition=SimpleNamespace(node_def=nodes), children=children)


def session(*operations: str) -> object:
    graph = SimpleNamespace(get_operations=lambda: [SimpleNamespace(type=name) for name in operations])
    return SimpleNamespace(graph=graph)


FUNCTION, EXECUTE = "eager/polymorphic_function/atomic_function.py", "eager/execute.py"
READS = function("IteratorGetNext")


@pytest.mark.parametrize(
    ("files", "waits"),
    [
        ([("ops/gen_dataset_ops.py", None)], True),
        ([("ops/gen_experimental_dataset_ops.py", None)], True),
        ([("ops/gen_math_ops.py", None)], False),
        ([(FUNCTION, READS), (EXECUTE, None)], True),
        ([(FUNCTION, function("MatMul", children=(READS,))), (EXECUTE, None)], True),
        ([(FUNCTION, function("MatMul")), (EXECUTE, None)], False),
        ([(FUNCTION, object()), (EXECUTE, None)], True),  # an older TensorFlow
        ([(EXECUTE, None)], False),
        ([("client/session.py", session("Add", "IteratorGetNext")), ("client/session.py", object())], True),
        ([("client/session.py", session("Add")), ("client/session.py", object())], False),
    ],
)
def test_calls_that_read_datasets_wait_for_data(files: list[tuple[str, object]], waits: bool) -> None:
    found: list[types.FrameType] = []

    def look() -> None:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            found.append(frame)
            frame = frame.f_back

    called: Callable[[], object] = look
    for file, owner in reversed(files):
        called = call(file, called, owner)
    called()
    found = [frame for frame in found if frame.f_code.co_filename.startswith(ROOT)]
    assert waits_for_data(found) is waits


def test_threads_that_compute_do_not_wait_for_data() -> None:
    assert waiting_for_data() == set()
