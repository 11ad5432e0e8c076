"""Commands in the containers of tasks: their streams, and their ends."""

from __future__ import annotations

import functools
import os
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import websocket

from tfk8s.backends.kubernetes.api_server import commands, errors, streams, terminal
from tfk8s.errors import ClusterError, TaskUnreachable


class Command:
    """Stands for a command in a pod: it has output, then ends when its input has ended."""

    def __init__(self, *messages: tuple[int, bytes], exit_code: int = 0, failure: str = "", version: int = 5) -> None:
        self.messages, self.end, self.version = list(messages), (exit_code, failure), version
        self.exit_code: int | None = None
        self.failure = ""
        self.sent = b""
        self.options: dict[str, Any] = {}
        self.stream, self.other_end = socket.socketpair()
        self.other_end.send(b"x" * 100)

    def __call__(self, client: object, namespace: str, pod: str, words: list[str], **options: Any) -> Command:
        self.options = options
        self.has_ended = not options["stdin"]
        return self

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.other_end.close()

    def fileno(self) -> int:
        return self.stream.fileno()

    def has_message(self) -> bool:
        return bool(self.messages)

    def receive(self) -> tuple[int, bytes]:
        if self.messages:
            return self.messages.pop(0)
        if self.has_ended:
            self.exit_code, self.failure = self.end
        return commands.STDOUT, b""

    def send(self, block: bytes) -> None:
        self.sent += block

    def end_input(self) -> bool:
        self.has_ended = True
        return self.version == 5

    def ping(self) -> None:
        raise AssertionError("the peer is not silent")

    def let_read_late(self) -> None:
        self.may_read_late = True


@pytest.fixture
def stdin() -> Iterator[int]:
    """The writing end of a pipe that is this process' standard input."""
    before = os.dup(0)
    reader, writer = os.pipe()
    os.dup2(reader, 0)
    yield writer
    os.dup2(before, 0)
    for descriptor in (before, reader):
        os.close(descriptor)


def run(monkeypatch: pytest.MonkeyPatch, command: object) -> int:
    monkeypatch.setattr(terminal, "RemoteCommand", command)
    return terminal.run(None, "ns", "demo-ps-0", ["nope"])  # type: ignore[arg-type]


def test_streams_are_copied_until_the_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], stdin: int
) -> None:
    os.write(stdin, b"in")
    os.close(stdin)
    command = Command((commands.STDOUT, b"out\n"), (commands.STDERR, b"err\n"), exit_code=7)
    assert run(monkeypatch, command) == 7
    assert (command.sent, command.options["stdin"], command.options["tty"]) == (b"in", True, False)
    assert capfd.readouterr() == ("out\n", "err\n")
    assert command.may_read_late


def receive_message(server: socket.socket) -> bytes:
    """Return the client's next message, unmasked."""
    _, length = server.recv(2, socket.MSG_WAITALL)
    length &= 0x7F
    if length == 126:
        (length,) = struct.unpack("!H", server.recv(2, socket.MSG_WAITALL))
    mask, data = (server.recv(count, socket.MSG_WAITALL) for count in (4, length))
    return bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))


def echo(server: socket.socket) -> None:
    """Echo input as `cat` does: read no more before the output is read. Then end with success."""
    with server:
        while (message := receive_message(server))[:1] == bytes([commands.STDIN]):
            data = bytes([commands.STDOUT]) + message[1:]
            server.sendall(b"\x82\x7e" + struct.pack("!H", len(data)) + data)
        status = b'\3{"status": "Success"}'
        server.sendall(bytes([0x82, len(status)]) + status)
        server.recv(1000)  # the end of the stream


def test_a_command_that_echoes_more_than_the_stream_holds(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], stdin: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        remote = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    for end in (remote, server):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    opened = websocket.WebSocket(skip_utf8_validation=False)
    opened.sock, opened.connected = remote, True
    opened.getheaders = lambda: {"sec-websocket-protocol": "v5.channel.k8s.io"}  # type: ignore[method-assign]
    monkeypatch.setattr(streams, "open_stream", lambda *_: opened)
    monkeypatch.setattr(streams, "DEAD_PEER_TIMEOUT", 1.0)
    data = bytes(range(256)) * 1000

    def write() -> None:
        with open(stdin, "wb") as sink:
            sink.write(data)

    for work in (write, functools.partial(echo, server)):
        threading.Thread(target=work, daemon=True).start()
    assert terminal.run(None, "ns", "demo-ps-0", ["cat"]) == 0  # type: ignore[arg-type]
    assert capfdbinary.readouterr().out == data


def test_a_command_without_input_has_no_standard_input(monkeypatch: pytest.MonkeyPatch, stdin: int) -> None:
    os.close(stdin)
    with open(os.devnull) as null:
        os.dup2(null.fileno(), 0)
    command = Command()
    assert run(monkeypatch, command) == 0
    assert command.options["stdin"] is False


def test_an_old_api_server_can_not_end_the_input(monkeypatch: pytest.MonkeyPatch, stdin: int) -> None:
    os.close(stdin)
    with pytest.raises(ClusterError) as caught:
        run(monkeypatch, Command(version=4))
    assert str(caught.value) == ("this API server can't pass on the end of standard input, which needs Kubernetes 1.30")


@pytest.mark.parametrize(
    ("failure", "code", "error"),
    [
        ('exec: "nope": executable file not found in $PATH', 127, "tfk8s: can't run nope: executable file not found\n"),
        ('exec: "nope": permission denied', 126, "tfk8s: can't run nope: permission denied\n"),
    ],
)
def test_a_command_that_can_not_start_ends_as_in_a_shell(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], stdin: int, failure: str, code: int, error: str
) -> None:
    os.close(stdin)
    assert run(monkeypatch, Command(exit_code=1, failure=failure)) == code
    assert capfd.readouterr().err == error
    with pytest.raises(ClusterError, match=r"^the command can't run in pod demo-ps-0: no space left$"):
        run(monkeypatch, Command(exit_code=1, failure="no space left"))


def test_a_task_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise errors.ApiError(404, 'pods "demo-ps-0" not found')

    with pytest.raises(TaskUnreachable) as caught:
        run(monkeypatch, refuse)
    assert str(caught.value) == 'pod "demo-ps-0" can\'t be reached: pods "demo-ps-0" not found'
