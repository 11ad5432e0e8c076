"""Calls on a proxied connection: those that wait, and the answers to aborted ones."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from tfk8s import polling
from tfk8s.sessions.http2_proxy import ProxiedConnection, stand_in
from tfk8s.task import wire
from tfk8s.task.wire import DATA, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS

CANCEL = struct.pack(">I", 8)


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return wire.frame(kind, flags, stream, payload)


class Scene:
    """A proxied connection, and both of its outer ends."""

    def __init__(self) -> None:
        self.client, client_end = socket.socketpair()
        self.server, server_end = socket.socketpair()
        for end in (self.client, self.server):
            end.settimeout(20)
        self.connection = ProxiedConnection(client_end, server_end, insert_timeout=0.01)
        self._sockets = [self.client, self.server, client_end, server_end]
        directions = (self.connection.carry_upstream, self.connection.carry_downstream)
        self._threads = [threading.Thread(target=direction, args=[lambda: None]) for direction in directions]
        for thread in self._threads:
            thread.start()

    def request(self, *frames: bytes) -> None:
        """Send from the client to the server."""
        data = b"".join(frames)
        self.client.sendall(data)
        assert self.server.recv(len(data), socket.MSG_WAITALL) == data

    def respond(self, data: bytes) -> None:
        """Send from the server to the client."""
        self.server.sendall(data)
        assert self.client.recv(len(data), socket.MSG_WAITALL) == data

    def abort(self, reason: str = "lost", min_age: float = 0.0) -> int:
        return self.connection.abort_calls(reason, min_age)

    def close(self) -> None:
        self.connection.close()
        for thread in self._threads:
            thread.join(20)
        for end in self._sockets:
            end.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


def parse_headers(block: bytes) -> dict[str, str]:
    """Return the headers of a block of literals without Huffman codes."""
    position, texts = 0, []
    while position < len(block):
        position += not len(texts) % 2  # the form of the header
        size, position = block[position], position + 1
        shift = 0
        while size >= 127 and (shift == 0 or block[position - 1] & 0x80):
            size, position, shift = size + ((block[position] & 0x7F) << shift), position + 1, shift + 7
        texts.append(block[position : position + size].decode())
        position += size
    return dict(zip(texts[::2], texts[1::2], strict=True))


@pytest.mark.parametrize("reason", ["worker/1 was lost: killed", f"100% “lost”: {'x' * 500}", 127 * "x"])
def test_waiting_call_is_aborted_on_both_sides(scene: Scene, reason: str) -> None:
    scene.request(PREFACE, frame(SETTINGS, 0), frame(HEADERS, 5, b"head"), frame(DATA, 5, b"body", END_STREAM))
    assert scene.abort(reason) == 1
    answer = scene.client.recv(1 << 16)
    assert (answer[3], answer[4], answer[5:9]) == (HEADERS, 5, struct.pack(">I", 5))  # the end of both
    assert len(answer) == 9 + int.from_bytes(answer[:3], "big")
    headers = parse_headers(answer[9:])
    assert (headers[":status"], headers["grpc-status"], unquote(headers["grpc-message"])) == ("200", "10", reason)
    assert scene.server.recv(100) == frame(RST_STREAM, 5, CANCEL)
    assert scene.abort() == 0


def test_young_call_is_not_aborted(scene: Scene) -> None:
    scene.request(PREFACE, frame(HEADERS, 1))
    assert scene.abort(min_age=60.0) == 0
    scene.respond(frame(HEADERS, 1) + frame(DATA, 1, b"result") + frame(HEADERS, 1, b"", END_STREAM))
    assert scene.abort() == 0


@pytest.mark.parametrize(
    "end", [frame(RST_STREAM, 1, CANCEL), frame(DATA, 1, b"", END_STREAM), frame(HEADERS, 1, b"", END_STREAM)]
)
def test_answered_or_refused_call_is_not_aborted(scene: Scene, end: bytes) -> None:
    scene.request(PREFACE, frame(HEADERS, 1))
    scene.respond(end)
    assert scene.abort() == 0


def test_cancelled_call_is_not_aborted(scene: Scene) -> None:
    scene.request(PREFACE, frame(HEADERS, 1), frame(RST_STREAM, 1, CANCEL))
    assert scene.abort() == 0


def test_frames_may_come_byte_by_byte(scene: Scene) -> None:
    for byte in PREFACE + frame(HEADERS, 1, b"one") + frame(HEADERS, 3, b"two"):
        scene.request(bytes([byte]))
    assert scene.abort() == 2


def test_begun_answer_is_reset(scene: Scene) -> None:
    scene.request(PREFACE, frame(HEADERS, 1))
    scene.respond(frame(HEADERS, 1) + frame(DATA, 1, b"half"))
    assert scene.abort() == 1
    assert scene.client.recv(100) == frame(RST_STREAM, 1, CANCEL)


@pytest.mark.parametrize("sent", [4, 14])
def test_connection_is_cut_in_the_middle_of_a_frame(scene: Scene, sent: int) -> None:
    scene.request(PREFACE, frame(HEADERS, 1))
    scene.respond(frame(DATA, 1, b"half of it")[:sent])
    assert scene.abort() == 1
    assert scene.client.recv(100) == b""
    assert scene.server.recv(100) == b""


def test_connection_is_cut_if_the_client_reads_nothing(scene: Scene) -> None:
    scene.request(PREFACE, frame(HEADERS, 1))
    scene.server.settimeout(0.05)
    with contextlib.suppress(TimeoutError):  # once all buffers are full
        while True:
            scene.server.sendall(frame(DATA, 1, bytes(1 << 14)))
    assert scene.abort() == 1
    while scene.client.recv(1 << 20):
        pass


def test_client_sees_that_the_server_reads_nothing(scene: Scene) -> None:
    scene.server.shutdown(socket.SHUT_RD)
    scene.client.sendall(PREFACE)
    assert scene.client.recv(100) == b""


def test_both_ends_are_closed_after_anything_unexpected(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        """A server's end of which nothing can be read."""

        def recv_into(self, _: memoryview) -> int:
            raise ValueError("no HTTP/2")

        def sendall(self, _: bytes | memoryview) -> None:
            """Take all."""

        def shutdown(self, how: int) -> None:
            ended.append(how)

    ended: list[int] = []
    ends: list[None] = []
    client, client_end = socket.socketpair()
    with client, client_end:
        client.settimeout(20)
        ProxiedConnection(client_end, Broken()).carry_downstream(lambda: ends.append(None))
        assert client.recv(1) == b""
        with pytest.raises(OSError, match=r".+"):
            client.sendall(b"x")
    assert ended == [socket.SHUT_RDWR]
    assert "a connection to a task was closed: no HTTP/2" in caplog.text


def test_stand_in_lets_calls_wait() -> None:
    with stand_in() as stream:
        stream.settimeout(20)
        assert stream.recv(100) == frame(SETTINGS, 0)
        stream.sendall(PREFACE + frame(HEADERS, 1) * 1000)
        before = threading.active_count()
        stream.shutdown(socket.SHUT_WR)
        polling.wait_until(lambda: threading.active_count() < before, "its thread to end", 20)
