"""Messages between processes of one machine: JSON and file descriptors on Unix stream sockets.

A message is its length in four bytes, then its JSON. Descriptors travel with the length.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tfk8s.task.programs import inspector

_LENGTH = struct.Struct("!I")
_MAX_DESCRIPTORS = 8
_MAX_BYTES = 1 << 26  # of one message; the largest ones have an environment, which Linux limits to some MB

Message = dict[str, Any]


def send(connection: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send one message, and duplicates of the descriptors.

    Raises:
        OSError: the peer has ended.
    """
    data = json.dumps(message).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(data))], descriptors)
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message and its descriptors, or None if the peer has ended.

    Raises:
        OSError: the connection is broken, the peer sent no message, or the socket's timeout is over.
    """
    head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, _MAX_DESCRIPTORS)
    try:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        message = _receive_body(connection, head)
    except BaseException:
        _close(descriptors)
        raise
    if message is None:
        _close(descriptors)
        return None
    return message, descriptors


def _receive_body(connection: socket.socket, head: bytes) -> Message | None:
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > _MAX_BYTES:
        raise OSError(errno.EMSGSIZE, f"a message of {size} bytes; at most {_MAX_BYTES} are allowed")
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise OSError(errno.EBADMSG, f"a message that is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise OSError(errno.EBADMSG, "a message that is no JSON object")
    return message


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def listen(path: Path) -> socket.socket:
    """Return a listening socket at `path`, for this user alone."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.fchmod(listener.fileno(), 0o600)  # `bind` makes the file with these permissions
    with _short(path) as name:
        listener.bind(name)
    listener.listen(64)
    return listener


def peer(connection: socket.socket) -> int:
    """Return the process at the other end, which is this user's.

    Raises:
        PermissionError: the process is another user's.
    """
    pid, user = inspector.peer(connection)
    if user != os.geteuid():
        raise PermissionError(errno.EPERM, "another user has the socket")
    return pid


def connect(path: Path, timeout: float) -> socket.socket:
    """Return a socket connected to the listener at `path`, a process of this user.

    Raises:
        OSError: no process listens at `path`, or one of another user.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        with _short(path) as name:
            connection.connect(name)
        peer(connection)
    except OSError:
        connection.close()
        raise
    return connection


class _short:  # noqa: N801 - read as a function
    """A short name of `path` for a Unix socket's address, which has at most 108 bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)
