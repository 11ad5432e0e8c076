"""WebSockets whose server lies: each ends with one error, in bounded time and memory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import websocket
from websocket import WebSocketException

from tfk8s.backends.kubernetes.api_server import web_sockets


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    client, server = socket.socketpair()
    for end in (client, server):
        end.settimeout(20)
    with client, server:
        yield client, server


Ends = tuple[socket.socket, socket.socket]


def send(server: socket.socket, data: bytes, count: int = 1) -> None:
    """Send in a thread, until the peer closes: a socket holds only so much."""

    def work() -> None:
        try:
            for _ in range(count):
                server.sendall(data)
        except OSError:
            pass

    threading.Thread(target=work, daemon=True).start()


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x7f" + (1 << 40).to_bytes(8) + b"x" * 1000,
        b"\x8a\x7f" + (1 << 40).to_bytes(8) + b"x" * 1000,  # a pong
        b"\x02\x7e\xff\xff" + b"x" * 0xFFFF,  # a first fragment, and then other first fragments
        b"\x82\xff" + b"\xff" * 12,
        b"\xff" * 20,
    ],
)
def test_a_message_that_lies(ends: Ends, data: bytes) -> None:
    opened = web_sockets.BoundedWebSocket()
    opened.sock, opened.connected = ends[0], True
    send(ends[1], data * 2)
    with pytest.raises(WebSocketException):
        opened.recv_data_frame(True)


def test_fragments_without_end(ends: Ends) -> None:
    opened = web_sockets.BoundedWebSocket()
    opened.sock, opened.connected = ends[0], True
    ends[1].sendall(b"\x02\x01\0")
    send(ends[1], b"\x00\x7e\xff\xff" + b"x" * 0xFFFF, 1000)
    with pytest.raises(websocket.WebSocketPayloadException, match="is longer than 4194304"):
        opened.recv_data_frame(True)
    ends[0].close()


def test_a_message_that_comes_too_slowly(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_sockets, "MESSAGE_TIMEOUT", -1.0)
    opened = web_sockets.BoundedWebSocket()
    opened.sock, opened.connected = ends[0], True
    ends[1].sendall(b"\x82\x02ab")
    with pytest.raises(websocket.WebSocketTimeoutException, match="a message took more than -1 s"):
        opened.recv_data_frame(True)


REFUSED = b"HTTP/1.1 500 no\r\n"


@pytest.mark.parametrize(
    ("head", "data", "problem"),
    [
        (b"", b"x", "the answer is longer than 65536 bytes"), (REFUSED, b"a: b\r\n", "the answer is longer than"),
        (REFUSED + b"content-length: 99999999999\r\n\r\n", b"x", "the answer is longer than"),
        (b"HTTP/1.1\r\n", b"", "Invalid status line"), (b"HTTP/1.1 301 x\r\n\r\n", b"", "Redirect limit"),
        (b"HTTP/1.1 200 x\r\n\r\n", b"", "Handshake status 200"),
    ],
)  # fmt: skip
def test_an_answer_that_lies(ends: Ends, head: bytes, data: bytes, problem: str) -> None:
    send(ends[1], head + data * (1 << 17))
    with pytest.raises(WebSocketException, match=problem):
        web_sockets.open_web_socket("ws://h/", ends[0], [], 20)


def test_an_answer_that_comes_too_slowly(ends: Ends) -> None:
    ends[1].sendall(REFUSED)
    with pytest.raises(WebSocketException, match="did not arrive whole in time"):
        web_sockets.open_web_socket("ws://h/", ends[0], [], -1.0)
