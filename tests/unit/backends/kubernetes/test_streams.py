"""Streams to pods: forwarded ports, and commands in containers."""

from __future__ import annotations

import json
import socket
import threading
import types
from typing import Any

import pytest
import websocket

from tfk8s.backends.kubernetes import errors, streams
from tfk8s.errors import ClusterError, TaskUnreachable


class Pinged:
    def __init__(self):
        self.pings = 0

    def ping(self):
        self.pings += 1


def test_a_silent_stream_is_pinged_and_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(streams.time, "monotonic", lambda: now)
    stream = Pinged()
    life = streams._Life(stream)
    over = []
    for second in range(1, 21):
        now = 100.0 + second
        over.append(life.is_over(said=second in (3, 9)))
    assert over.index(True) == 9 + streams._DEAD_SECONDS  # the second 18
    assert stream.pings == 8  # at 2, 5, 7, 11, 13, 15, 17 and 19


class Told:
    """A stream of a command that says these messages."""

    sock = None

    def __init__(self, *messages):
        self.messages, self.sent, self.closed = list(messages), [], False

    def settimeout(self, seconds):
        pass

    def recv_data(self):
        return self.messages.pop(0)

    def send_binary(self, data):
        self.sent.append(data)

    def close(self):
        self.closed = True


def client_that_opens(stream):
    transport = types.SimpleNamespace(with_credentials=lambda *_: stream)
    return types.SimpleNamespace(transport=transport, url="https://h", context="c")


def execute(monkeypatch, *messages):
    stream = Told(*messages)
    try:
        streams.execute(client_that_opens(stream), "ns", "pod", ["run"], [b"in"])
    finally:
        assert (stream.sent, stream.closed) == ([b"\0in"], True)


BINARY, CLOSE = websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_CLOSE


def test_a_command_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    execute(monkeypatch, (BINARY, b""), (BINARY, b"\1out"), (BINARY, b'\3{"status": "Success"}'))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([(BINARY, b"\2no such file\n"), (BINARY, b'\3{"status": "Failure"}')], "run failed in pod pod: no such file"),
        ([(CLOSE, b"\x03\xe8")], "the stream to pod pod ended before run did"),  # 1000, which begins as a status does
        ([(BINARY, b"\1"), (CLOSE, b"")], "the stream to pod pod ended before run did"),
    ],
)
def test_a_command_fails_or_is_lost(
    monkeypatch: pytest.MonkeyPatch, messages: list[tuple[int, bytes]], words: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        execute(monkeypatch, *messages)
    assert str(caught.value) == words


class Port:
    """A forwarded port: the API server's end, and whose stream it is."""

    def __init__(self):
        here, self.server = socket.socketpair()
        ours, self.stream = socket.socketpair()
        for one in (self.server, self.stream):
            one.settimeout(20)
        opened = websocket.WebSocket(skip_utf8_validation=False)
        opened.sock, opened.connected = here, True
        self.carrying = threading.Thread(target=streams._relay, args=(opened, ours), daemon=True)
        self.carrying.start()

    def says(self, *messages):
        self.server.sendall(b"".join(bytes([0x82, len(one)]) + one for one in messages))

    def hears(self):
        """Return the next message, which its key is laid over."""
        head = self.server.recv(6, socket.MSG_WAITALL)
        data = self.server.recv(head[1] & 0x7F, socket.MSG_WAITALL)
        return bytes(one ^ head[2 + at % 4] for at, one in enumerate(data))


@pytest.fixture
def port(request, monkeypatch):
    monkeypatch.setattr(streams, "_DEAD_SECONDS", getattr(request, "param", streams._DEAD_SECONDS))
    port = Port()
    yield port
    for one in (port.server, port.stream):
        one.close()
    port.carrying.join(20)
    assert not port.carrying.is_alive()


def test_data_goes_both_ways_without_channel_headers(port: Port) -> None:
    port.says(b"\0\xae\x08", b"\1\xae\x08", b"\0one")
    assert port.stream.recv(100) == b"one"
    port.stream.sendall(b"two")
    assert port.hears() == b"\0two"


@pytest.mark.parametrize("port", [600.0], indirect=True)
def test_data_before_an_error_arrives(port: Port) -> None:
    port.says(b"\0\xae\x08", b"\1\xae\x08", b"\0one", b"\1nobody listens")
    assert [port.stream.recv(100) for _ in range(2)] == [b"one", b""]


@pytest.mark.parametrize("port", [0.05], indirect=True)
def test_an_incomplete_message_ends_the_stream(port: Port) -> None:
    port.server.sendall(b"\x82\x05\0")  # a binary message of five bytes, of which one comes
    assert port.stream.recv(100) == b""


@pytest.mark.parametrize(("code", "error"), [(403, errors.ApiError), (404, TaskUnreachable), (500, TaskUnreachable)])
def test_a_pod_that_can_t_be_dialled(code: int, error: Any) -> None:
    refusal = websocket.WebSocketBadStatusException("", code, resp_body=json.dumps({"message": "no"}).encode())
    with pytest.raises(error):
        streams.dial(client_that_opens(refusal), "ns", "pod", 2222)
