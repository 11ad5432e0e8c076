"""Streams to pods: forwarded ports, and standard input."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import websocket
from fakes.web_socket import client_that_opens

from tfk8s.backends.kubernetes.api_server import errors, streams, web_sockets
from tfk8s.errors import TaskUnreachable


def test_a_silent_stream_is_pinged_and_then_closed() -> None:
    now, pings = 0.0, []
    heartbeat = streams.Heartbeat(lambda: pings.append(now), 8.0, lambda: now)
    dead = []
    for second in range(1, 21):
        now = float(second)
        if heartbeat.is_dead(received=second in (3, 9)):
            dead.append(second)
    assert dead == [18, 19, 20]
    assert pings == [2, 5, 7, 11, 13, 15, 17, 19]


class Port:
    """A forwarded port: `server` is the API server's end, `stream` the caller's."""

    def __init__(self, timeout: float) -> None:
        self.remote, self.server = socket.socketpair()
        local, self.stream = socket.socketpair()
        for end in (self.server, self.stream):
            end.settimeout(20)
        opened = web_sockets.BoundedWebSocket()
        opened.sock, opened.connected = self.remote, True
        self.relay = threading.Thread(target=streams.relay, args=(opened, local, timeout), daemon=True)
        self.relay.start()

    def send(self, *messages: bytes) -> None:
        self.server.sendall(b"".join(bytes([0x82, len(message)]) + message for message in messages))

    def receive(self) -> bytes:
        """Return the next message, unmasked."""
        head = self.server.recv(6, socket.MSG_WAITALL)
        data = self.server.recv(head[1] & 0x7F, socket.MSG_WAITALL)
        return bytes(byte ^ head[2 + index % 4] for index, byte in enumerate(data))


@pytest.fixture
def port(request: pytest.FixtureRequest) -> Iterator[Port]:
    port = Port(getattr(request, "param", streams.DEAD_PEER_TIMEOUT))
    yield port
    for end in (port.server, port.stream):
        end.close()
    port.relay.join(20)
    assert not port.relay.is_alive()


def test_data_is_copied_both_ways_without_channel_numbers(port: Port) -> None:
    port.send(b"\0\xae\x08", b"\1\xae\x08", b"\0one")
    assert port.stream.recv(100) == b"one"
    port.stream.sendall(b"two")
    assert port.receive() == b"\0two"


@pytest.mark.parametrize("port", [600.0], indirect=True)
def test_data_before_an_error_arrives(port: Port) -> None:
    port.send(b"\0\xae\x08", b"\1\xae\x08", b"\0one", b"\1nobody listens")
    assert [port.stream.recv(100) for _ in range(2)] == [b"one", b""]


def test_a_stream_that_the_peer_closes(port: Port) -> None:
    port.server.sendall(b"\x88\x00")
    assert port.stream.recv(100) == b""
    port.relay.join(20)
    assert port.remote.fileno() == -1


@pytest.mark.parametrize("port", [0.05], indirect=True)
def test_an_incomplete_message_ends_the_stream(port: Port) -> None:
    port.server.sendall(b"\x82\x05\0")  # the first byte of a binary message of five bytes
    assert port.stream.recv(100) == b""


def test_a_message_over_the_limit_ends_the_stream(port: Port) -> None:
    port.server.sendall(b"\x82\x7f" + (1 << 40).to_bytes(8))
    assert port.stream.recv(100) == b""


@pytest.mark.parametrize(("code", "error"), [(403, errors.ApiError), (404, TaskUnreachable), (500, TaskUnreachable)])
def test_a_pod_that_can_t_be_dialled(code: int, error: type[Exception]) -> None:
    refusal = websocket.WebSocketBadStatusException("", code, resp_body=json.dumps({"message": "no"}).encode())
    with pytest.raises(error):
        streams.dial(client_that_opens(refusal), "ns", "pod", 2222)


# ---- standard input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["/dev/null", "an empty file", "an ended pipe", "closed"])
def test_no_input(source: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    if source == "an ended pipe":
        read, write = os.pipe()
        os.close(write)
    else:
        read = os.open({"an empty file": tmp_path / "empty"}.get(source, "/dev/null"), os.O_RDONLY)
    if source == "closed":
        os.close(read)
    assert streams.begin_stdin(read) is None


def test_a_pipe_begins_with_what_is_there() -> None:
    read, write = os.pipe()
    assert streams.begin_stdin(read) == b""
    os.write(write, b"one")
    assert streams.begin_stdin(read) == b"one"
    os.write(write, b"two")
    assert os.read(read, 100) == b"two"
    os.close(write)
    assert streams.begin_stdin(read) is None
