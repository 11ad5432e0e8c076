"""A proxy for a client's connection to a task's server, which can abort single calls.

TensorFlow waits for ever for a server that is stopped, or that waits itself for a stopped server. If the connection is
cut, TensorFlow's client repeats the call, up to ten times. So the proxy answers such a call in the server's place.
TensorFlow raises that answer as an error at once; the session and its other calls continue. Standard library only: this
file also runs in pods.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Protocol
from urllib.parse import quote

from tfk8s.log import log
from tfk8s.task import wire

_CHUNK = 1 << 18
_CANCEL = struct.pack(">I", 8)  # HTTP/2's error code
_ABORTED = 10  # gRPC's status: TensorFlow raises AbortedError, and does not repeat the call


class Stream(Protocol):
    """One end of a connection, as far as a proxy needs a socket."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """As `socket.recv_into`."""

    def sendall(self, data: bytes | memoryview, /) -> None:
        """As `socket.sendall`."""

    def shutdown(self, how: int, /) -> None:
        """As `socket.shutdown`."""


class _Direction:
    """One direction of a connection: passes bytes on as they come, and inserts frames between two others.

    Args:
        on_frame: is called with the kind, the flags and the stream of each frame.
        preface: how many bytes come before the frames.
    """

    def __init__(
        self, source: Stream, sink: Stream, on_frame: Callable[[int, int, int], None], preface: int = 0
    ) -> None:
        self._source, self._sink, self._on_frame = source, sink, on_frame
        self._rest = preface  # bytes left of the current frame
        self._head = b""
        self._lock = threading.Lock()

    def carry(self, at_end: Callable[[], object]) -> None:
        """Pass bytes on until the source ends; then end the sink, whose other direction may continue.

        Both ends are closed if the bytes are no HTTP/2, or if anything else unexpected happens: neither may wait.
        """
        try:
            self._carry()
            at_end()
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:  # a broken connection has ended
            return
        except Exception as error:
            log.warning("a connection to a task was closed: %s", error)
            _end(self._source, self._sink)

    def _carry(self) -> None:
        buffer = memoryview(bytearray(_CHUNK))
        while count := _receive(self._source, buffer):
            try:
                with self._lock:
                    self._parse(buffer[:count])
                    self._sink.sendall(buffer[:count])
            except OSError:  # the sink is gone, and the other direction ends: end the source, too
                self._source.shutdown(socket.SHUT_RDWR)
                raise

    def insert(self, frames: bytes, timeout: float) -> bool:
        """Send frames; return False if the sink is gone, or is in the middle of a frame after `timeout` seconds."""
        if not self._lock.acquire(timeout=timeout):
            return False
        try:
            if self._rest or self._head:
                return False
            self._sink.sendall(frames)
        except OSError:
            return False
        finally:
            self._lock.release()
        return True

    def _parse(self, block: memoryview) -> None:
        """Find the frames in the next bytes."""
        position = 0
        while position < len(block):
            if self._rest:
                count = min(self._rest, len(block) - position)
                self._rest -= count
            else:
                count = min(wire.HEAD_SIZE - len(self._head), len(block) - position)
                self._head += block[position : position + count]
                if len(self._head) == wire.HEAD_SIZE:
                    self._rest, *frame = wire.parse_head(self._head)
                    self._on_frame(*frame)
                    self._head = b""
            position += count


class ProxiedConnection:
    """One connection, and the calls on it that wait for an answer.

    Args:
        client, server: both ends; the caller closes them.
        insert_timeout: how many seconds to wait for a client that reads nothing, before the connection is cut.
    """

    def __init__(self, client: Stream, server: Stream, insert_timeout: float = 1.0) -> None:
        self._ends, self._insert_timeout = (client, server), insert_timeout
        self._upstream = _Direction(client, server, self._on_request, len(wire.PREFACE))
        self._downstream = _Direction(server, client, self._on_response)
        self._since: dict[int, float] = {}  # the time of each waiting call, by its stream
        self._answering: set[int] = set()  # the calls whose answer has begun

    def carry_upstream(self, at_end: Callable[[], object]) -> None:
        """Pass the client's bytes on until they end."""
        self._upstream.carry(at_end)

    def carry_downstream(self, at_end: Callable[[], object]) -> None:
        """Pass the server's bytes on until they end."""
        self._downstream.carry(at_end)

    def abort_calls(self, reason: str, min_age: float) -> int:
        """Abort the calls that have waited for `min_age` seconds, with a reason for the client; return their number.

        The server gets a cancellation.
        """
        now = time.monotonic()
        streams = [stream for stream, since in list(self._since.items()) if now - since >= min_age]
        for stream in streams:
            reset = wire.frame(wire.RST_STREAM, 0, stream, _CANCEL)
            answer = reset if stream in self._answering else _abort(stream, reason)
            if not self._downstream.insert(answer, self._insert_timeout):
                self.close()  # in the middle of an answer, nothing else ends the call
                break
            self._forget(stream)
            self._upstream.insert(reset, self._insert_timeout)
        return len(streams)

    def close(self) -> None:
        """End the connection, on both sides."""
        _end(*self._ends)

    def _on_request(self, kind: int, _: int, stream: int) -> None:
        if kind == wire.HEADERS:
            self._since[stream] = time.monotonic()
        elif kind == wire.RST_STREAM:
            self._forget(stream)

    def _on_response(self, kind: int, flags: int, stream: int) -> None:
        if kind == wire.RST_STREAM or (kind in (wire.DATA, wire.HEADERS) and flags & wire.END_STREAM):
            self._forget(stream)
        elif kind == wire.HEADERS and stream in self._since:
            self._answering.add(stream)

    def _forget(self, stream: int) -> None:
        self._since.pop(stream, None)
        self._answering.discard(stream)


def stand_in() -> socket.socket:
    """Return a stream in the place of a lost server: clients can make calls, which wait until they are aborted."""
    client, server = socket.socketpair()
    server.sendall(wire.frame(wire.SETTINGS))  # clients make no calls before
    threading.Thread(target=_discard, args=[server], name="tfk8s-stand-in", daemon=True).start()
    return client


def _end(*ends: Stream) -> None:
    for end in ends:
        with contextlib.suppress(OSError):  # not connected any more
            end.shutdown(socket.SHUT_RDWR)  # ends the threads that wait for it; closing alone would not


def _discard(stream: socket.socket) -> None:
    with stream, contextlib.suppress(OSError):
        while stream.recv(_CHUNK):
            pass


def _abort(stream: int, reason: str) -> bytes:
    """Return the whole answer to an aborted call (gRPC's "Trailers-Only", doc/PROTOCOL-HTTP2.md)."""
    headers = {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-status": str(_ABORTED),
        "grpc-message": quote(reason, safe=" /:;,()'=+@"),
    }
    return wire.frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, stream, wire.header_block(headers))


def _receive(source: Stream, buffer: memoryview) -> int:
    """Return how many bytes came; 0 if the source has ended or broken."""
    try:
        return source.recv_into(buffer)
    except OSError:
        return 0
