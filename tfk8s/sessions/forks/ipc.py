"""Messages between processes of one machine: JSON and file descriptors on Unix stream sockets.

A message is its length in four bytes, then its JSON. Descriptors travel with the length.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LENGTH = struct.Struct("!I")
_MAX_DESCRIPTORS = 8

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
        OSError: the connection is broken, or the socket's timeout is over.
    """
    head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, _MAX_DESCRIPTORS)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    message: Message = json.loads(data)
    return message, descriptors


def listen(path: Path) -> socket.socket:
    """Return a listening socket at `path`. The permissions of the folder restrict its clients."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short(path) as name:
        listener.bind(name)
    listener.listen(64)
    return listener


def connect(path: Path, timeout: float) -> socket.socket:
    """Return a socket connected to the listener at `path`.

    Raises:
        OSError: no process listens at `path`.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        with _short(path) as name:
            connection.connect(name)
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
