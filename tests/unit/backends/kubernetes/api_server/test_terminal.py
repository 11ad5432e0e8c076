"""Commands in the containers of tasks: their streams, and their ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tfk8s.backends.kubernetes.api_server import commands, errors, terminal
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
