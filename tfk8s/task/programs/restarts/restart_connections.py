"""The connections between pods whose programs run again together. Standard library only: this file runs in pods."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator

from tfk8s.task.programs.restarts import restart_coordinator as messages
from tfk8s.task.programs.restarts.restart_coordinator import MAX_LINE, BadMessage, Message

_UNCONFIRMED = 25_000  # milliseconds
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


def lines(connection: socket.socket) -> Iterator[Message]:
    """Yield the messages of a connection until its end, or until one that is no message."""
    with contextlib.suppress(OSError, BadMessage), connection.makefile("rb") as stream:
        while line := stream.readline(MAX_LINE + 1):
            yield messages.parse(line)


def send(connection: socket.socket, message: Message) -> bool:
    """Send a message; return whether the connection takes it."""
    try:
        connection.sendall(messages.to_line(message))
    except OSError:
        return False
    return True


def keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that the other side's node is gone, also while an order is on its way there.

    The kernel sends no probes while the other side has not confirmed what was sent (tcp(7), TCP_USER_TIMEOUT).
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNCONFIRMED)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def cut(connection: socket.socket) -> None:
    """End a connection, whatever state it is in."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def say(text: str) -> None:
    """Print a line to the log of the pod."""
    sys.stderr.write(f"tfk8s: {text}\n")
    sys.stderr.flush()


def guarded(run: Callable[[], object]) -> None:
    """Run a thread. Its failure ends this process, so that process 1 learns of it."""
    try:
        run()
    except BaseException as error:
        say(f"programs run again alone from now on: {type(error).__name__}: {error}")
        os._exit(1)
