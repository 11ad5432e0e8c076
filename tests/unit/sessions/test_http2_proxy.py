"""Calls on a connection that is carried: which wait, and what they get when they are ended."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from tfk8s import polling
from tfk8s.sessions import http2_proxy
from tfk8s.sessions.http2_proxy import ProxiedConnection, stand_in
from tfk8s.task import wire

DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END = 1
CANCEL = struct.pack(">I", 8)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return http2_proxy._frame(kind, flags, stream, payload)


class Scene:
    """A connection that is carried, and both of its outer ends."""

    def __init__(self) -> None:
        self.client, inner = socket.socketpair()
        self.server, other = socket.socketpair()
        for end in (self.client, self.server):
            end.settimeout(20)
        self.carried = ProxiedConnection(inner, other)
        self._sockets = [self.client, self.server, inner, other]
        ways = (self.carried.carry_there, self.carried.carry_back)
        self._threads = [threading.Thread(target=way, args=[lambda: None]) for way in ways]
        for thread in self._threads:
            thread.start()

    def asks(self, *frames: bytes) -> None:
        """The client says this, and the server has heard it."""
        said = b"".join(frames)
        self.client.sendall(said)
        assert self.server.recv(len(said), socket.MSG_WAITALL) == said

    def answers(self, data: bytes) -> None:
        """The server says this, and the client has heard it."""
        self.server.sendall(data)
        assert self.client.recv(len(data), socket.MSG_WAITALL) == data

    def close(self) -> None:
        self.carried.close()
        for thread in self._threads:
            thread.join(20)
        for one in self._sockets:
            one.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


def text_of(answer: bytes) -> dict[str, str]:
    """Return the headers of an answer."""
    at, found, words = 9, {}, []
    while at < len(answer):
        at += not len(words) % 2  # the form of the header
        size, at = answer[at], at + 1
        if size == 127:
            more, at = wire._varint(answer, at)
            size += more
        words.append(answer[at : at + size].decode())
        at += size
    found.update(zip(words[::2], words[1::2], strict=True))
    return found


@pytest.mark.parametrize("why", ["worker/1 was lost: killed", f"100% “lost”: {'x' * 500}", 127 * "x"])
def test_a_call_that_waits_is_aborted_with_the_reason_and_the_server_told(scene: Scene, why: str) -> None:
    scene.asks(PREFACE, frame(SETTINGS, 0), frame(HEADERS, 5, b"head"), frame(DATA, 5, b"body", END))
    assert scene.carried.end_calls(why, 0.0) == 1
    answer = scene.client.recv(1 << 16)
    assert (answer[3], answer[4], answer[5:9]) == (HEADERS, 5, struct.pack(">I", 5))  # the end of both
    assert len(answer) == 9 + int.from_bytes(answer[:3], "big")
    said = text_of(answer)
    assert (said[":status"], said["grpc-status"], unquote(said["grpc-message"])) == ("200", "10", why)
    assert scene.server.recv(100) == frame(RST_STREAM, 5, CANCEL)
    assert scene.carried.end_calls(why, 0.0) == 0


def test_only_calls_that_have_waited_long_enough_are_ended(scene: Scene) -> None:
    scene.asks(PREFACE, frame(HEADERS, 1))
    assert scene.carried.end_calls("lost", 60.0) == 0
    scene.answers(frame(HEADERS, 1) + frame(DATA, 1, b"result") + frame(HEADERS, 1, b"", END))
    assert scene.carried.end_calls("lost", 0.0) == 0


@pytest.mark.parametrize("end", [frame(RST_STREAM, 1, CANCEL), frame(DATA, 1, b"", END), frame(HEADERS, 1, b"", END)])
def test_a_call_that_is_answered_or_refused_waits_no_more(scene: Scene, end: bytes) -> None:
    scene.asks(PREFACE, frame(HEADERS, 1))
    scene.answers(end)
    assert scene.carried.end_calls("lost", 0.0) == 0


def test_a_call_that_the_client_gives_up_waits_no_more(scene: Scene) -> None:
    scene.asks(PREFACE, frame(HEADERS, 1), frame(RST_STREAM, 1, CANCEL))
    assert scene.carried.end_calls("lost", 0.0) == 0


def test_frames_are_found_however_they_are_cut(scene: Scene) -> None:
    for byte in PREFACE + frame(HEADERS, 1, b"one") + frame(HEADERS, 3, b"two"):
        scene.asks(bytes([byte]))
    assert scene.carried.end_calls("lost", 0.0) == 2


def test_an_answer_that_has_begun_is_reset(scene: Scene) -> None:
    scene.asks(PREFACE, frame(HEADERS, 1))
    scene.answers(frame(HEADERS, 1) + frame(DATA, 1, b"half"))
    assert scene.carried.end_calls("lost", 0.0) == 1
    assert scene.client.recv(100) == frame(RST_STREAM, 1, CANCEL)


@pytest.mark.parametrize("sent", [4, 14])
def test_in_the_middle_of_a_frame_nothing_but_the_end_ends_a_call(scene: Scene, sent: int) -> None:
    scene.asks(PREFACE, frame(HEADERS, 1))
    scene.answers(frame(DATA, 1, b"half of it")[:sent])
    assert scene.carried.end_calls("lost", 0.0) == 1
    assert scene.client.recv(100) == b""
    assert scene.server.recv(100) == b""


def test_a_call_ends_by_the_end_where_its_client_takes_no_more(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_proxy, "_LOCK_SECONDS", 0.01)
    scene.asks(PREFACE, frame(HEADERS, 1))
    ending = threading.Thread(target=scene.carried.end_calls, args=["lost", 0.0], daemon=True)
    with scene.carried._back._lock:  # as while something is written to the client
        ending.start()
        assert scene.client.recv(100) == b""
    ending.join(20)


def test_a_client_whose_server_takes_no_more_hears_of_it(scene: Scene) -> None:
    scene.server.shutdown(socket.SHUT_RD)
    scene.client.sendall(PREFACE)
    assert scene.client.recv(100) == b""


def test_a_server_in_whose_place_somebody_stands_lets_calls_wait() -> None:
    with stand_in() as stream:
        stream.settimeout(20)
        assert stream.recv(100) == frame(SETTINGS, 0)
        stream.sendall(PREFACE + frame(HEADERS, 1) * 1000)
        before = threading.active_count()
        stream.shutdown(socket.SHUT_WR)
        polling.wait_until(lambda: threading.active_count() < before, "it to end", 20)
