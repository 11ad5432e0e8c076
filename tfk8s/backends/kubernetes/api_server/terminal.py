"""Commands in containers with the terminal of the user, or with this process' standard streams."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager

from tfk8s import platforms, polling
from tfk8s.backends.kubernetes.api_server import commands, streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.commands import RemoteCommand
from tfk8s.core.script import NOT_EXECUTABLE, NOT_FOUND
from tfk8s.errors import ClusterError

_BLOCK = 1 << 12  # a writable socket takes so much at once
_PIPE_CLOSED = 128 + platforms.SIGPIPE  # a shell's exit code
_REFUSALS = {  # of runc and crun
    "executable file not found": NOT_FOUND,
    "no such file or directory": NOT_FOUND,
    "permission denied": NOT_EXECUTABLE,
}


def run(client: Client, namespace: str, pod: str, words: Sequence[str]) -> int:
    """Run a command with this process' standard streams; return its exit code as a shell would.

    The command gets a terminal if standard input and output are terminals. On Windows, it gets neither a terminal nor
    input.

    Raises:
        TaskUnreachable: the pod does not exist, or does not run.
        ClusterError: the stream broke.
    """
    has_terminal = platforms.POLLS_FILES and os.isatty(0) and os.isatty(1)
    has_input = has_terminal or streams.is_input(0)
    with streams.reaching(pod):
        command = RemoteCommand(
            client, namespace, pod, words, stdin=has_input, tty=has_terminal, timeout=streams.DEAD_PEER_TIMEOUT
        )
    try:
        with command, _raw(command) if has_terminal else contextlib.nullcontext() as resized:
            if has_input and not has_terminal:
                command.let_read_late()
            _copy(command, 0 if has_input else None, resized)
    except BrokenPipeError:
        return _PIPE_CLOSED
    if not command.failure:
        return command.exit_code or 0
    for refusal, code in _REFUSALS.items():
        if refusal in command.failure.lower():
            sys.stderr.write(f"tfk8s: can't run {words[0]}: {refusal}\n")
            return code
    raise ClusterError(f"the command can't run in pod {pod}: {command.failure}")


def _raw(command: RemoteCommand) -> AbstractContextManager[int]:
    from tfk8s.backends.kubernetes.api_server import raw_terminal

    return raw_terminal.raw(command.resize)


def _copy(command: RemoteCommand, source: int | None, resized: int | None) -> None:
    """Copy the standard streams until the command ends.

    Input waits until it can be sent at once, because a command may read late, or not before its output is read. Pings
    wait behind the input, so silence says nothing then.

    Args:
        source: the standard input, or None.
        resized: readable when the terminal has another size; None without a terminal.
    """
    pod = command.fileno()

    def ping() -> None:
        if polling.writable(pod):
            command.ping()

    heartbeat = streams.Heartbeat(ping, streams.DEAD_PEER_TIMEOUT)
    sources = {descriptor for descriptor in (pod, source, resized) if descriptor is not None}
    while command.exit_code is None:
        is_stuck = source in sources and not polling.writable(pod)
        timeout = 0.0 if command.has_message() else streams.PING_INTERVAL
        readable = polling.ready(sources - {source} if is_stuck else sources, timeout, sink=pod if is_stuck else None)
        has_message = command.has_message() or pod in readable
        if heartbeat.is_dead(received=has_message) and command.is_input_read:
            raise ClusterError("the stream to the pod broke: the API server is silent")
        if has_message:
            channel, data = command.receive()
            _write(2 if channel == commands.STDERR else 1, data)
        if resized in readable:
            os.read(resized, _BLOCK)
            command.resize(*os.get_terminal_size(1))
        if source in readable and not _send(command, source):
            sources.discard(source)


def _send(command: RemoteCommand, source: int) -> bool:
    """Send a block of the standard input; return False after its end."""
    block = os.read(source, _BLOCK)
    if block:
        command.send(block)
        return True
    if not command.end_input():
        raise ClusterError(
            "this API server can't pass on the end of standard input, which needs Kubernetes 1.30",
            help="give the command no input: < /dev/null",
        )
    return False


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
