"""Frames between `submit` and a script's pod, in order and complete, even if another connection replaces a broken one.

A frame is its kind, the length of its data, and its data. Each side numbers the frames that it sends, and keeps them
until the peer has acknowledged them. On another connection, each side says how many frames it has received, and the
other repeats the rest. Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

_HEAD = struct.Struct("!BI")
_COUNT = struct.Struct("!Q")
_BLOCK = 1 << 16
MAX_UNACKNOWLEDGED = 1 << 20  # bytes, after which `is_full` holds
MAX_FRAME = 1 << 22  # bytes of a frame's data; Linux allows 2 MiB of arguments and variables

PORT = 2200  # of a script's pod, at its loopback address alone
HELLO, ACKNOWLEDGED = 0, 1  # frames without a number: the first of a connection; the count of received frames
RUN, ARCHIVE, INPUT, SIGNAL = 2, 3, 4, 5  # of the client
OUTPUT, ERROR, END, BEGUN, FILES = 6, 7, 8, 9, 10  # of the pod; FILES come after END, the last one is empty
# FILES of the client say that nobody takes the rest.

HELLO_TIMEOUT = 10.0
PING_INTERVAL = 5.0  # the client acknowledges at least so often
SILENCE_TIMEOUT = 30.0  # after which the pod gives up a connection
RESUME_TIMEOUT = 60.0  # for which a script in a warm pod goes on without its client
CLIENT_TIMEOUT = 300.0  # for which the input and the files of a script in a pod of its own wait for the client

CLIENT_VARIABLE = "TFK8S_CLIENT"  # set in a script's own pod if a client connects: to `HAS_INPUT` if it has input
HAS_INPUT = "input"

Frame = tuple[int, bytes]


class Damaged(Exception):
    """The peer sent bytes that are no frames of this protocol."""


class Channel:
    """One side of a stream of frames. Its methods never block.

    Attributes:
        connection: the current connection; None after it broke.
        received: the number of frames that have arrived.
    """

    def __init__(self) -> None:
        self.connection: socket.socket | None = None
        self.received = 0
        self._unacknowledged: deque[bytes] = deque()
        self._first = 0  # the number of the oldest frame that is not acknowledged
        self._size = 0  # of the frames that are not acknowledged
        self._output, self._input = bytearray(), bytearray()
        self._told, self._told_at = 0, time.monotonic()  # the last count of received frames that the peer got

    def attach(self, connection: socket.socket, received: int) -> None:
        """Continue on another connection, whose peer has received so many frames."""
        self.detach()
        self._acknowledge(received)
        connection.setblocking(False)
        with contextlib.suppress(OSError):  # not TCP
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a short frame may wait for 40 ms
        self.connection = connection
        self._told, self._told_at = self.received, time.monotonic()
        self._output += b"".join(self._unacknowledged)

    def detach(self) -> None:
        """Close the connection, which is broken or replaced."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self._output.clear()
        self._input.clear()

    @property
    def is_full(self) -> bool:
        """True if so much is not acknowledged that nothing should be added."""
        return self._size > MAX_UNACKNOWLEDGED

    @property
    def is_acknowledged(self) -> bool:
        """True if the peer has everything."""
        return not self._unacknowledged

    @property
    def has_output(self) -> bool:
        """True if bytes wait until the connection takes them."""
        return bool(self._output)

    def send(self, kind: int, data: bytes = b"") -> None:
        """Send a frame, on this connection or a later one."""
        sent = frame(kind, data)
        self._unacknowledged.append(sent)
        self._size += len(sent)
        if self.connection is not None:
            self._output += sent
            self.write()

    def send_json(self, kind: int, message: object) -> None:
        """Send a frame with a JSON text."""
        self.send(kind, json.dumps(message).encode())

    def acknowledge(self) -> None:
        """Tell the peer how many frames have arrived, if the peer does not know yet."""
        if self.connection is not None and self._told != self.received:
            self._tell()

    def keep_alive(self) -> None:
        """Show the peer that this side is alive, if nothing has shown that for `PING_INTERVAL`."""
        if self.connection is not None and time.monotonic() - self._told_at >= PING_INTERVAL:
            self._tell()

    def _tell(self) -> None:
        self._told, self._told_at = self.received, time.monotonic()
        self._output += frame(ACKNOWLEDGED, _COUNT.pack(self.received))
        self.write()

    def write(self) -> None:
        """Write what the connection takes."""
        if self.connection is None:
            return
        try:
            while self._output:
                del self._output[: self.connection.send(memoryview(self._output)[:_BLOCK].tobytes())]
        except BlockingIOError:
            return
        except OSError:
            self.detach()

    def read(self) -> list[Frame]:
        """Return the frames that have arrived, which the caller acknowledges when it has room for more.

        At the end of the connection, `connection` becomes None.

        Raises:
            Damaged: the peer sent something else. Then `connection` is None, too.
        """
        if self.connection is None:
            return []
        try:
            block = self.connection.recv(_BLOCK)
        except BlockingIOError:
            return []
        except OSError:
            block = b""
        if not block:
            self.detach()
            return []
        self._input += block
        try:
            frames = list(self._frames())
        except Damaged:
            self.detach()
            raise
        self.received += len(frames)
        return frames

    def _frames(self) -> Iterator[Frame]:
        while len(self._input) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._input)
            if length > MAX_FRAME or (kind == ACKNOWLEDGED and length != _COUNT.size):
                raise Damaged("the peer is no pod of tfk8s, or no `tfk8s submit`")
            if len(self._input) < _HEAD.size + length:
                return
            data = bytes(self._input[_HEAD.size : _HEAD.size + length])
            del self._input[: _HEAD.size + length]
            if kind == ACKNOWLEDGED:
                self._acknowledge(*_COUNT.unpack(data))
            else:
                yield kind, data

    def _acknowledge(self, count: int) -> None:
        while self._first < count and self._unacknowledged:
            self._size -= len(self._unacknowledged.popleft())
            self._first += 1


def frame(kind: int, data: bytes) -> bytes:
    """Return the bytes of a frame."""
    return _HEAD.pack(kind, len(data)) + data


def say_hello(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send the first frame of a connection, which blocks.

    Raises:
        OSError: the connection is broken.
    """
    connection.sendall(frame(HELLO, json.dumps(message).encode()))


def hear_hello(connection: socket.socket, timeout: float = HELLO_TIMEOUT) -> dict[str, Any]:
    """Return the first frame of a connection.

    Raises:
        OSError: the connection is broken, or its peer is silent or does not speak this protocol.
    """
    deadline = time.monotonic() + timeout
    kind, length = _HEAD.unpack(_read(connection, _HEAD.size, deadline))
    if kind != HELLO or length > _BLOCK:
        raise ConnectionError("the peer is no warm pod")
    with contextlib.suppress(ValueError, RecursionError):
        message = json.loads(_read(connection, length, deadline))
        if isinstance(message, dict):
            return message
    raise ConnectionError("the peer is no warm pod")


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        if (remaining := deadline - time.monotonic()) <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(remaining)
        block = connection.recv(size - len(data))
        if not block:
            raise ConnectionError("the connection ended")
        data += block
    return data
