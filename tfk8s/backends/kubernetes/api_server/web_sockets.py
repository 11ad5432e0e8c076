"""WebSockets to a server that may be hostile: its answer and each of its messages have limits of size and time."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

import websocket
from websocket import ABNF, STATUS_NORMAL, continuous_frame, frame_buffer

MAX_MESSAGE = 1 << 22  # bytes; kubelet and container runtimes copy in blocks of 32 KiB
MESSAGE_TIMEOUT = 60.0  # from the first byte of a message to its last, on a slow connection
_MAX_ANSWER = 1 << 16  # bytes of a refusal with its headers
_UNEXPECTED = (ValueError, LookupError, TypeError, struct.error)  # of frames that the library does not expect


def open_web_socket(
    url: str, connection: socket.socket, headers: Sequence[str], answer_timeout: float
) -> websocket.WebSocket:
    """Return a WebSocket on a connection, which `close` of the WebSocket closes.

    Args:
        url: "ws://" or "wss://", for the headers of the request.
        connection: to the server, with a timeout.
        headers: of the request.
        answer_timeout: the longest time for the whole answer.

    Raises:
        WebSocketBadStatusException: the server refuses, with its answer.
        WebSocketException: the answer is none, or over a limit.
        OSError: the connection broke.
    """
    stream = BoundedWebSocket()
    with _one_error():
        answering: Any = _Answering(connection, answer_timeout)
        stream.connect(url, socket=answering, redirect_limit=0, header=headers)  # type: ignore[no-untyped-call]
    stream.sock = connection
    stream.settimeout(None)
    return stream


class BoundedWebSocket(websocket.WebSocket):
    """A WebSocket whose messages arrive within `MAX_MESSAGE` bytes and `MESSAGE_TIMEOUT`.

    Its errors are WebSocketException and OSError, whatever the peer sends.
    """

    def __init__(self) -> None:
        super().__init__(skip_utf8_validation=False)
        self.frame_buffer = _Frames(self._recv, skip_utf8_validation=False)
        self.cont_frame = _Fragments(fire_cont_frame=False, skip_utf8_validation=False)
        self._deadline: float | None = None  # None before the first byte of a message

    def recv_data_frame(self, control_frame: bool = False) -> tuple[int, ABNF]:
        """Return the next message, as in the base class."""
        self._deadline = None
        with _one_error():
            operation, frame = super().recv_data_frame(control_frame)
            return operation, frame

    def close(self, status: int = STATUS_NORMAL, reason: str | bytes = b"", timeout: float | None = 3.0) -> None:
        """Close within `timeout` and that of the connection; the base class leaves open what the peer has closed."""
        self._deadline = None if timeout is None else time.monotonic() + timeout
        try:
            super().close(status, reason, timeout)
        finally:
            self.shutdown()  # type: ignore[no-untyped-call]

    def _recv(self, bufsize: int) -> bytes:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise websocket.WebSocketTimeoutException(f"a message took more than {MESSAGE_TIMEOUT:g} s")
        block: bytes = super()._recv(bufsize)  # type: ignore[no-untyped-call]
        if self._deadline is None:
            self._deadline = time.monotonic() + MESSAGE_TIMEOUT
        return block


class _Frames(frame_buffer):
    def recv_strict(self, bufsize: int) -> bytes:
        _require_size(bufsize)
        return super().recv_strict(bufsize)


class _Fragments(continuous_frame):
    def add(self, frame: ABNF) -> None:
        _require_size(len(frame.data) + (len(self.cont_data[1]) if self.cont_data else 0))
        super().add(frame)


def _require_size(size: int) -> None:
    if size > MAX_MESSAGE:
        raise websocket.WebSocketPayloadException(f"a message of {size} bytes is longer than {MAX_MESSAGE}")


class _Answering:
    """A connection whose peer answers a request, within limits of size and time."""

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        self._connection, self._left = connection, _MAX_ANSWER
        self._deadline = time.monotonic() + timeout

    def recv(self, size: int) -> bytes:
        if not self._left:
            raise websocket.WebSocketPayloadException(f"the answer is longer than {_MAX_ANSWER} bytes")
        if time.monotonic() > self._deadline:
            raise websocket.WebSocketTimeoutException("the answer did not arrive whole in time")
        block = self._connection.recv(min(size, self._left))
        self._left -= len(block)
        return block

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@contextlib.contextmanager
def _one_error() -> Iterator[None]:
    """Raise a WebSocketProtocolException for what the library does not expect."""
    try:
        yield
    except _UNEXPECTED as error:
        raise websocket.WebSocketProtocolException(f"the peer speaks no WebSocket: {error}") from error
