"""Requests for sessions that get the ClusterSpec on their way; a real server is in tests/local/test_elastic.py."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from tfk8s.sessions.cluster import elastic
from tfk8s.sessions.cluster.filling import FillingStream, SessionFields
from tfk8s.task import wire
from tfk8s.task.wire import DATA, END_STREAM, HEAD_SIZE, SETTINGS, WINDOW_UPDATE, field

TASKS = {"worker/0": "w:1", "ps/0": "p:1"}
GRAPH, TARGET = field(1, b"graph" * 9), field(3, "grpc://127.0.0.1:5")
CONFIG, ISOLATED, OWN = field(7, 1), field(15, 1), field(14, b"own")


class Scene:
    """A stream with its server's end, for sessions of some tasks."""

    def __init__(self, tasks: dict[str, str] | None = TASKS) -> None:
        self.server, end = socket.socketpair()
        end.settimeout(5)
        self.fields = tasks and SessionFields(tasks, "worker/0")
        self.stream = FillingStream(end, lambda: self.fields)
        self.sockets, self._received = [self.server, end], b""

    def sent(self) -> list[tuple[int, int, int, bytes]]:
        """Return kind, flags, stream and payload of the frames that the server has got."""
        self.receive()
        data, self._received = self._received, b""
        return list(frames(data.removeprefix(wire.PREFACE)))

    def receive(self) -> None:
        """Take what the server has got."""
        self.server.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while part := self.server.recv(1 << 20):
                self._received += part

    def answer(self, data: bytes) -> bytes:
        """Send from the server; return what the client gets."""
        self.server.setblocking(True)
        self.server.sendall(data)
        buffer = bytearray(1 << 16)
        return bytes(buffer[: self.stream.recv_into(memoryview(buffer))])


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    for one in scene.sockets:
        one.close()


def frames(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    while data:
        size, kind, flags, stream = wire.parse_head(data[:HEAD_SIZE])
        yield kind, flags, stream, data[HEAD_SIZE : HEAD_SIZE + size]
        data = data[HEAD_SIZE + size :]


def message(found: list[tuple[int, int, int, bytes]]) -> bytes:
    """Return the message of the one call, which has ended."""
    data = [frame for frame in found if frame[0] == DATA]
    assert [flags & END_STREAM for _, flags, _, _ in data] == [0] * (len(data) - 1) + [END_STREAM]
    body = b"".join(payload for _, _, _, payload in data)
    assert struct.unpack(">BI", body[:5]) == (0, len(body) - 5)
    return body[5:]


def request(config: bytes = CONFIG, method: str = wire.CREATE_SESSION) -> bytes:
    return wire.request_frames(method, GRAPH + field(2, config) + TARGET)


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_session_gets_the_cluster_and_its_master(scene: Scene, size: int) -> None:
    sent = request()
    for start in range(0, len(sent), size):
        scene.stream.sendall(sent[start : start + size])
        scene.receive()
    found = message(scene.sent())
    assert found == GRAPH + field(2, CONFIG) + TARGET + SessionFields(TASKS, "worker/0").after(CONFIG)
    assert [value for number, value in wire.fields(found) if number == 3][-1] == b"grpc://w:1"


def test_isolated_session_shares_nothing(scene: Scene) -> None:
    scene.stream.sendall(request(ISOLATED))
    assert message(scene.sent()).endswith(SessionFields(TASKS, "worker/0").after(ISOLATED))


@pytest.mark.parametrize(
    ("config", "isolate", "is_filtered"),
    [(CONFIG, False, False), (ISOLATED, True, False), (field(4, "/job:ps"), False, True)],
)
def test_fields_suit_the_config(config: bytes, isolate: bool, is_filtered: bool) -> None:
    fields = SessionFields(TASKS, "worker/0")
    expected = elastic.session_fields("worker/0", TASKS, isolate=isolate, is_filtered=is_filtered)
    after = fields.after(config)
    assert after.startswith(expected)
    assert len(after) == fields.size
    assert not {number for number, _ in wire.fields(after[len(expected) :])} & set(range(1, 1000))
    filters = [value for number, value in wire.fields(dict(wire.fields(expected))[2]) if number == 4]
    assert filters == [b"/job:worker/task:0"] * is_filtered


def test_own_cluster_stays(scene: Scene) -> None:
    scene.stream.sendall(request(OWN))
    found = list(wire.fields(message(scene.sent())))
    assert found[:3] == [(1, b"graph" * 9), (2, OWN), (3, b"grpc://127.0.0.1:5")]
    assert [number for number, _ in found[3:]] == [1000]  # no field of the message


def test_other_calls_stay(scene: Scene) -> None:
    sent = request(method=wire.LIST_DEVICES)
    scene.stream.sendall(sent)
    assert list(frames(sent.removeprefix(wire.PREFACE))) == scene.sent()


def test_static_cluster_gets_nothing(scene: Scene) -> None:
    scene.fields = None
    scene.stream.sendall(request())
    assert list(frames(request().removeprefix(wire.PREFACE))) == scene.sent()


def test_client_writes_headers_in_full(scene: Scene) -> None:
    settings = wire.frame(SETTINGS, payload=struct.pack(">HI", 4, 1 << 20))
    assert scene.answer(settings) == wire.frame(SETTINGS, payload=struct.pack(">HIHI", 4, 1 << 20, 1, 0))
    acknowledged = wire.frame(SETTINGS, 1)
    assert scene.answer(acknowledged) == acknowledged


def window_update(stream: int, size: int) -> bytes:
    return wire.frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


def test_server_is_sent_no_more_than_it_takes(scene: Scene) -> None:
    tasks = {f"worker/{index}": f"{index:04}.example:2222" for index in range(4000)}
    scene.fields = SessionFields(tasks, "worker/0")
    scene.stream.sendall(request())
    before = scene.sent()
    own = 5 + len(GRAPH + field(2, CONFIG) + TARGET)
    assert sum(len(payload) for kind, *_, payload in before if kind == DATA) == 65535
    size = scene.fields.size - (65535 - own)
    assert scene.answer(window_update(1, size)) == window_update(1, size)
    assert scene.sent() == []  # the connection has no room yet
    # The client does not get what the appended bytes have used.
    assert scene.answer(window_update(0, size + 65535)) == window_update(0, size + own)
    assert message(before + scene.sent()).endswith(scene.fields.after(CONFIG))
    assert scene.answer(window_update(0, size + 9)) == window_update(0, 9)


def test_refused_request_is_forgotten(scene: Scene) -> None:
    tasks = {f"worker/{index}": f"{index:04}.example:2222" for index in range(4000)}
    scene.fields = SessionFields(tasks, "worker/0")
    scene.stream.sendall(request())
    scene.sent()
    reset = wire.frame(wire.RST_STREAM, 0, 1, struct.pack(">I", 8))
    assert scene.answer(reset) == reset
    scene.answer(window_update(0, 1 << 20) + window_update(1, 1 << 20))
    assert scene.sent() == []


def test_answers_pass_unchanged_in_any_parts(scene: Scene) -> None:
    answer = wire.frame(DATA, 0, 1, b"x" * 1000) + wire.frame(DATA, END_STREAM, 1)
    scene.server.sendall(answer)
    got, buffer = b"", memoryview(bytearray(13))
    while len(got) < len(answer):
        got += buffer[: scene.stream.recv_into(buffer)]
    assert got == answer
