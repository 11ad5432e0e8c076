"""Requests for sessions that get the ClusterSpec on their way; a real server is in tests/local/test_elastic.py."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tfk8s.sessions.cluster import elastic
from tfk8s.sessions.cluster.create_session import SessionFields
from tfk8s.sessions.cluster.elastic_requests import FillingStream
from tfk8s.task import wire
from tfk8s.task.wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD_SIZE,
    HEADERS,
    PADDED,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    field,
)

TASKS = {"worker/0": "w:1", "ps/0": "p:1"}
LARGE = SessionFields({"worker/0": "w" * 70_000}, "worker/0")
GRAPH, TARGET = field(1, b"graph" * 9), field(3, "grpc://127.0.0.1:5")
CONFIG, ISOLATED, OWN = field(7, 1), field(15, 1), field(14, b"own")


class Scene:
    """A stream with its server's end, for sessions of some tasks."""

    def __init__(self) -> None:
        self.server, end = socket.socketpair()
        end.settimeout(5)
        self.fields: SessionFields | None = SessionFields(TASKS, "worker/0")
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
        size = self.stream.recv_into(memoryview(buffer))
        self.receive()
        return bytes(buffer[:size])


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
    scene.fields = LARGE
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


def test_other_calls_wait_for_the_room_that_appended_bytes_used(scene: Scene) -> None:
    scene.stream.sendall(request())
    scene.stream.sendall(call(3))
    scene.stream.sendall(wire.frame(DATA, END_STREAM, 3, b"other") + call(5))
    assert scene.sent()[-2] == (DATA, END_STREAM, 3, b"other")
    size = 65535 - 5 - len(GRAPH + field(2, CONFIG) + TARGET) - len(b"other")  # what the client may send
    end = wire.frame(HEADERS, END_HEADERS | END_STREAM, 7, b"end")
    scene.stream.sendall(wire.frame(DATA, END_STREAM, 5, bytes(size)) + end)
    found = scene.sent()
    assert found[-1] == next(frames(end))
    assert sum(len(payload) for kind, *_, payload in found if kind == DATA) == size - scene.fields.size
    assert scene.answer(window_update(0, 1000)) == window_update(0, 1000)
    assert [(flags, len(payload)) for _, flags, _, payload in scene.sent()] == [(END_STREAM, scene.fields.size)]
    assert scene.answer(window_update(0, 1000)) == window_update(0, 1000 - scene.fields.size)


def test_new_windows_of_streams_count_once_the_client_knows_them(scene: Scene) -> None:
    settings = wire.frame(SETTINGS, payload=struct.pack(">HI", 4, 10))
    scene.answer(settings)
    opening, data = split_request()
    scene.stream.sendall(wire.PREFACE + opening)
    scene.stream.sendall(wire.frame(SETTINGS, wire.ACK) + wire.frame(DATA, END_STREAM, 1, data))
    before = scene.sent()
    assert sum(len(payload) for kind, *_, payload in before if kind == DATA) == 10
    scene.answer(wire.frame(SETTINGS, payload=struct.pack(">HI", 4, 1 << 20)))
    assert scene.sent() == []
    scene.stream.sendall(wire.frame(SETTINGS, wire.ACK))
    assert message(before + scene.sent()).endswith(scene.fields.after(CONFIG))


def call(stream: int, method: str = wire.LIST_DEVICES, *, flags: int = END_HEADERS) -> bytes:
    """Return the frame that begins a call."""
    return wire.frame(HEADERS, flags, stream, wire.header_block({":path": method}))


def split_request() -> tuple[bytes, bytes]:
    """Return the frame that begins a CreateSession, and the message."""
    return call(1, wire.CREATE_SESSION), wire.grpc_message(GRAPH + field(2, CONFIG) + TARGET)


@pytest.mark.parametrize("size", [1, 3, 4, 6])
def test_prefix_may_come_in_several_frames(scene: Scene, size: int) -> None:
    opening, data = split_request()
    scene.stream.sendall(wire.PREFACE + opening)
    for part in (data[:size], b"", data[size:]):
        scene.stream.sendall(wire.frame(DATA, 0, 1, part))
    scene.stream.sendall(wire.frame(DATA, END_STREAM, 1))
    assert message(scene.sent()) == GRAPH + field(2, CONFIG) + TARGET + scene.fields.after(CONFIG)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\0", struct.pack(">BI", 1, 3) + b"zip", struct.pack(">BI", 0, 0xFFFFFFFF)],
    ids=["nothing", "prefix", "compressed", "too-large"],
)
def test_data_without_a_plain_message_stay(scene: Scene, data: bytes) -> None:
    scene.stream.sendall(wire.PREFACE + split_request()[0] + wire.frame(DATA, END_STREAM, 1, data))
    assert scene.sent()[1:] == [(DATA, END_STREAM, 1, data)]


def pad(data: bytes, flags: int = 0) -> bytes:
    return wire.frame(DATA, PADDED | flags, 1, b"\x05" + data + bytes(5))


def test_padded_request_stays(scene: Scene) -> None:
    opening, data = split_request()
    sent = opening + pad(data[:3]) + pad(data[3:], END_STREAM)
    scene.stream.sendall(wire.PREFACE + sent)
    assert scene.sent() == list(frames(sent))


def test_padding_in_the_middle_of_a_request_ends_the_connection(scene: Scene) -> None:
    opening, data = split_request()
    scene.stream.sendall(wire.PREFACE + opening + wire.frame(DATA, 0, 1, data[:9]))
    with pytest.raises(ConnectionError, match="a frame is padded, in a request that has changed on its way"):
        scene.stream.sendall(pad(data[9:], END_STREAM))
    assert scene.stream.recv_into(memoryview(bytearray(1))) == 0


def test_headers_may_be_padded_and_continued(scene: Scene) -> None:
    opening, data = split_request()
    headers = wire.frame(HEADERS, PADDED, 1, b"\x02" + opening[HEAD_SIZE:] + bytes(2))
    more = wire.frame(wire.CONTINUATION, END_HEADERS, 1, b"more")
    scene.stream.sendall(wire.PREFACE + headers + more + wire.frame(DATA, END_STREAM, 1, data))
    found = scene.sent()
    assert found[:2] == list(frames(headers + more))
    assert message(found).endswith(scene.fields.after(CONFIG))


def test_nothing_comes_between_the_frames_of_headers(large: Scene) -> None:
    large.stream.sendall(call(3, flags=0))
    assert large.answer(window_update(1, 1 << 20) + window_update(0, 1 << 20))
    assert large.sent() == [*frames(call(3, flags=0))]
    more = wire.frame(wire.CONTINUATION, END_HEADERS, 3, b"more")
    large.stream.sendall(more)
    assert large.sent()[0] == next(frames(more))


@pytest.fixture
def large(scene: Scene) -> Scene:
    """A request whose appended bytes wait for the server."""
    scene.fields = LARGE
    scene.stream.sendall(request())
    scene.sent()
    return scene


RESET = wire.frame(RST_STREAM, 0, 1, struct.pack(">I", 8))


def test_refused_request_is_forgotten(large: Scene) -> None:
    assert large.answer(RESET) == RESET
    large.answer(window_update(0, 1 << 20) + window_update(1, 1 << 20))
    assert large.sent() == []


def test_cancelled_request_is_forgotten(large: Scene) -> None:
    large.stream.sendall(RESET)
    large.answer(window_update(0, 1 << 20) + window_update(1, 1 << 20))
    assert large.sent() == list(frames(RESET))


def test_request_goes_on_after_an_early_answer(large: Scene) -> None:
    answer = wire.frame(HEADERS, END_HEADERS | END_STREAM, 1, b"answer")
    assert large.answer(answer) == answer
    large.answer(window_update(0, 1 << 20) + window_update(1, 1 << 20))
    *_, (kind, flags, stream, _) = large.sent()
    assert (kind, flags, stream) == (DATA, END_STREAM, 1)


def test_frame_whose_request_was_refused_leaves_no_rest(scene: Scene) -> None:
    opening, data = split_request()
    frame = wire.frame(DATA, END_STREAM, 1, data)
    scene.stream.sendall(wire.PREFACE + opening + frame[:20])
    scene.sent()
    assert scene.answer(RESET) == RESET
    scene.stream.sendall(frame[20:] + call(3))
    assert scene.sent() == list(frames(call(3)))
    # The client gets back what the server has not got.
    assert scene.answer(window_update(0, 9)) == window_update(0, 9 + len(frame) - 20)


def test_answers_pass_unchanged_in_any_parts(scene: Scene) -> None:
    answer = wire.frame(DATA, 0, 1, b"x" * 1000) + wire.frame(DATA, END_STREAM, 1)
    scene.server.sendall(answer)
    got, buffer = b"", memoryview(bytearray(13))
    while len(got) < len(answer):
        got += buffer[: scene.stream.recv_into(buffer)]
    assert got == answer


class Client:
    """A client that sends calls in frames of any size, as its windows allow."""

    def __init__(self, scene: Scene, random: Random) -> None:
        self.scene, self.random = scene, random
        self.room = self.first = 65535
        self.left: dict[int, bytes] = {}  # of each call
        self.rooms: dict[int, int] = {}

    def call(self, stream: int, method: str, data: bytes) -> None:
        self.left[stream], self.rooms[stream] = wire.grpc_message(data), self.first
        self.send(call(stream, method))

    def send(self, data: bytes) -> None:
        for part in cut(data, self.random):
            self.scene.stream.sendall(part)
            self.scene.receive()

    def go_on(self) -> None:
        """Send one frame of each call."""
        for stream, data in list(self.left.items()):
            size = self.random.randint(1, 40_000)
            size = min(size, len(data), self.room, self.rooms[stream])
            if size <= 0:
                continue
            self.room -= size
            self.rooms[stream] -= size
            self.left[stream] = data[size:]
            self.send(wire.frame(DATA, 0 if data[size:] else END_STREAM, stream, data[:size]))
            if not data[size:]:
                del self.left[stream]

    def receive(self, data: bytes) -> None:
        for kind, flags, stream, payload in frames(data):
            if kind == SETTINGS and not flags:
                before, self.first = self.first, dict(struct.iter_unpack(">HI", payload)).get(4, self.first)
                self.rooms = {one: room + self.first - before for one, room in self.rooms.items()}
                self.send(wire.frame(SETTINGS, wire.ACK))
            elif kind == WINDOW_UPDATE and stream:
                self.rooms[stream] += int.from_bytes(payload, "big")
            elif kind == WINDOW_UPDATE:
                self.room += int.from_bytes(payload, "big")


class Server:
    """A server that enlarges a window once half of it is used, as gRPC does, and accepts no byte more."""

    def __init__(self, random: Random) -> None:
        self.size, self.first = random.randint(40_000, 100_000), 65535
        self.room = 65535
        self.rooms: dict[int, int] = {}
        self.got: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.settings: list[int] = []

    def receive(self, found: list[tuple[int, int, int, bytes]]) -> None:
        for kind, flags, stream, payload in found:
            if kind == SETTINGS:
                before, self.first = self.first, self.settings.pop(0)
                self.rooms = {one: room + self.first - before for one, room in self.rooms.items()}
            elif kind == HEADERS:
                self.rooms[stream], self.got[stream] = self.first, b""
            else:
                assert kind == DATA
                assert stream not in self.ended
                self.room -= len(payload)
                self.rooms[stream] -= len(payload)
                assert self.room >= 0
                assert self.rooms[stream] >= 0
                self.got[stream] += payload
                self.ended |= {stream} if flags & END_STREAM else set()

    def set_first(self, size: int) -> bytes:
        self.settings.append(size)
        return wire.frame(SETTINGS, payload=struct.pack(">HI", 4, size))

    def updates(self) -> bytes:
        data = b""
        if self.room <= self.size // 2:
            data, self.room = window_update(0, self.size - self.room), self.size
        for stream, room in self.rooms.items():
            if room <= self.size // 2 and stream not in self.ended:
                data += window_update(stream, self.size - room)
                self.rooms[stream] = self.size
        return data


def cut(data: bytes, random: Random) -> Iterator[bytes]:
    """Yield the bytes in four parts, some of which may be empty."""
    places = sorted(random.choice((1, HEAD_SIZE, HEAD_SIZE + 3, len(data))) for _ in range(3))
    for start, end in itertools.pairwise((0, *places, len(data))):
        yield data[start:end]


PING = wire.frame(6, 0, 0, bytes(8))


@settings(max_examples=4 * settings().max_examples, phases=[Phase.generate])
@given(st.randoms(use_true_random=False))
def test_windows_hold_and_every_call_ends(random: Random) -> None:
    with contextlib.ExitStack() as stack:
        scene = Scene()
        for end in scene.sockets:
            stack.enter_context(end)
        scene.fields = SessionFields({"worker/0": "w" * random.choice((1, 1000, 40_000))}, "worker/0")
        client, server = Client(scene, random), Server(random)
        scene.stream.sendall(wire.PREFACE)
        client.receive(scene.answer(server.set_first(random.choice((0, 1000, 65535, 1 << 20)))))
        config = random.choice((CONFIG, ISOLATED, OWN))
        expected: dict[int, bytes] = {}
        for stream in range(1, 2 * random.randint(1, 5), 2):
            is_creation = random.random() < 0.6
            data = field(1, bytes(random.randint(0, 90_000))) + field(2, config) + TARGET
            client.call(stream, wire.CREATE_SESSION if is_creation else wire.LIST_DEVICES, data)
            expected[stream] = wire.grpc_message(data + scene.fields.after(config) * is_creation)
        for _ in range(200):
            client.go_on()
            server.receive(scene.sent())
            more = server.set_first(random.randint(0, 1 << 17)) if random.random() < 0.1 else b""
            client.receive(scene.answer(server.updates() + more + PING))
            server.receive(scene.sent())
            if server.ended == set(expected):
                break
        assert server.got == expected


@pytest.mark.parametrize(
    "answer",
    [
        wire.frame(SETTINGS, payload=b"12345"),
        wire.frame(WINDOW_UPDATE, payload=b"123456789"),
        wire.frame(WINDOW_UPDATE),
        wire.frame_head(1 << 20, SETTINGS, 0, 0),
        wire.frame(SETTINGS) * 2000,
    ],
    ids=["settings of 5 bytes", "window of 9 bytes", "empty window", "settings of 1 MiB", "2000 settings"],
)
@pytest.mark.parametrize("is_used", [False, True])
def test_frames_that_http2_does_not_allow_are_an_error(scene: Scene, answer: bytes, is_used: bool) -> None:
    if is_used:
        scene.stream.sendall(request(GRAPH * 9000))
    with pytest.raises(wire.ProbeError):
        scene.answer(answer)
