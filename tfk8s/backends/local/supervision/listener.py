"""The socket of a local cluster's supervisor: each connection has one request of `requests`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from tfk8s.backends.local.supervision import requests
from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.task import ipc

_MESSAGE_TIMEOUT = 5.0  # for one message of a client

Answer = Callable[[socket.socket, requests.Request, list[int]], bool]


class RequestListener:
    """Takes requests. One that can't be answered gets {refused}, the reason.

    Args:
        path: the socket's.
        answer: called with a connection, its request and its descriptors. Returns whether the connection stays open,
            and takes the descriptors that are to stay open from the list.
    """

    def __init__(self, loop: Loop, path: Path, answer: Answer) -> None:
        self._loop, self._answer = loop, answer
        self.socket = ipc.listen(path)
        loop.on_readable(self.socket, self._accept)

    def close(self) -> None:
        """Close the socket, so that a command does not wait for an answer."""
        self.socket.close()

    def _accept(self) -> None:
        connection, _ = self.socket.accept()
        try:
            ipc.peer(connection)
        except PermissionError:
            connection.close()
            return
        connection.settimeout(_MESSAGE_TIMEOUT)
        self._loop.on_readable(connection, lambda: self._read_request(connection))

    def _read_request(self, connection: socket.socket) -> None:
        self._loop.forget(connection)
        descriptors: list[int] = []
        try:
            message, descriptors = ipc.receive(connection) or (None, [])
            if message is None or not self._answer(connection, requests.parse(message), descriptors):
                connection.close()
        except Exception as error:
            with contextlib.suppress(OSError):  # the client is gone
                ipc.send(connection, {"refused": str(error) or type(error).__name__})
            connection.close()
            if not isinstance(error, OSError | requests.BadRequest):
                raise  # to the log
        finally:
            processes.close(descriptors)
