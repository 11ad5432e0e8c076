"""Commands in containers, on streams of messages."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import websocket
from fakes.web_socket import Stream, client_that_opens

from tfk8s.backends.kubernetes.api_server import commands
from tfk8s.backends.kubernetes.api_server.commands import RemoteCommand
from tfk8s.errors import ClusterError

BINARY, CLOSE, PONG = websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_CLOSE, websocket.ABNF.OPCODE_PONG
SUCCESS = (BINARY, b'\3{"status": "Success"}')


def execute(*messages: tuple[int, bytes]) -> None:
    stream = Stream(*messages)
    try:
        commands.execute(client_that_opens(stream), "ns", "pod", ["run"], [b"in"])
    finally:
        assert (stream.sent, stream.closed) == ([b"\0in"], True)


def test_a_command_succeeds() -> None:
    execute((BINARY, b""), (PONG, b""), (BINARY, b"\1out"), SUCCESS)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([(BINARY, b"\2no such file\n"), (BINARY, b'\3{"status": "Failure"}')], "run failed in pod pod: no such file"),
        # The code 1000 begins with the same byte as a status.
        ([(CLOSE, b"\x03\xe8")], "the stream to pod pod ended before run did"),
        ([(BINARY, b"\1"), (CLOSE, b"")], "the stream to pod pod ended before run did"),
        ([(BINARY, b"\1")], "the stream to pod pod broke: reset"),
    ],
)
def test_a_command_fails_or_is_lost(messages: list[tuple[int, bytes]], error: str) -> None:
    with pytest.raises(ClusterError) as caught:
        execute(*messages)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "status", [b"", b"{", b"[]", b"[" * 100_000, b'{"details": []}', b'{"details": {"causes": [1]}}',
               b'{"details": {"causes": [{"reason": "ExitCode", "message": "x"}]}}'],
)  # fmt: skip
def test_a_status_that_is_none(status: bytes) -> None:
    with pytest.raises(ClusterError, match="pod pod sent no status of run: "):
        execute((PONG, b"9" * 5000), (BINARY, b"\3" + status))


def test_a_command_that_writes_without_end() -> None:
    blocks = [(BINARY, b"\1" + b"x" * (1 << 20))] * 100
    with pytest.raises(ClusterError) as caught:
        execute(*blocks, (BINARY, b'\3{"status": "Failure"}'))
    assert len(str(caught.value)) < 1 << 17


class EndlessErrors(Stream):
    """A stream of a command that writes errors for ever."""

    def recv_data_frame(self, control: bool) -> tuple[int, Any]:
        self.messages = [(BINARY, b"\2x")]
        return super().recv_data_frame(control)


def test_a_command_that_never_ends() -> None:
    with RemoteCommand(client_that_opens(EndlessErrors()), "ns", "pod", ["run"], timeout=0.05) as command:
        with pytest.raises(ClusterError, match=r"^run in pod pod does not end$"):
            commands.Output(command).read(1)
        with pytest.raises(ClusterError, match=r"^run in pod pod does not end$"):
            command.wait(0.05)


def status(code: str) -> bytes:
    causes = [{"reason": "ExitCode", "message": code}]
    return (
        b"\3" + json.dumps({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}).encode()
    )


@pytest.mark.parametrize(
    ("end", "code", "failure"),
    [
        (SUCCESS[1], 0, ""),
        (status("7"), 7, ""),
        (b'\3{"status": "Failure", "message": "no such container"}', 1, "no such container"),
    ],
)
def test_the_exit_code_of_a_command(end: bytes, code: int, failure: str) -> None:
    with RemoteCommand(client_that_opens(Stream((BINARY, end))), "ns", "pod", ["run"]) as command:
        command.receive()
    assert (command.exit_code, command.failure) == (code, failure)


def test_the_end_of_the_input_needs_version_5() -> None:
    for protocol, sent in (("v5.channel.k8s.io", [b"\xff\0"]), ("v4.channel.k8s.io", [])):
        stream = Stream(protocol=protocol)
        with RemoteCommand(client_that_opens(stream), "ns", "pod", ["run"], tty=True) as command:
            assert command.end_input() is bool(sent)
            command.resize(80, 25)
        assert stream.sent == [*sent, b'\4{"Width": 80, "Height": 25}']


def test_output_is_a_file() -> None:
    stream = Stream((BINARY, b"\1one"), (BINARY, b"\2warning"), (BINARY, b"\1two"), SUCCESS)
    with RemoteCommand(client_that_opens(stream), "ns", "pod", ["run"]) as command:
        assert io.BufferedReader(commands.Output(command)).read() == b"onetwo"
    stream = Stream((BINARY, b"\2refused"), (BINARY, status("1")))
    with (
        RemoteCommand(client_that_opens(stream), "ns", "pod", ["run"]) as command,
        pytest.raises(ClusterError, match=r"^refused$"),
    ):
        commands.Output(command).read(1)
