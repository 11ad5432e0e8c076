"""A client's connection to a task's server, carried so that single calls on it can be ended.

TensorFlow waits for ever for the answer to a call of a server that is stopped, or that waits itself for one that is.
Where the connection is cut, its client makes the call again, up to ten times. So such a call is given an answer in the
server's place, which TensorFlow raises at once; the session and its other calls go on. Standard library only: this file
also runs in pods.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from urllib.parse import quote

from tfk8s.task import wire

_CHUNK = 1 << 18
_LOCK_SECONDS = 1.0  # for who is being written to, which may take no more
_PREFACE = 24  # bytes that a client says before its frames (RFC 9113, 3.4)
_HEAD = 9  # bytes of a frame before its payload
_DATA, _HEADERS, _RST_STREAM = 0, 1, 3
_END_STREAM, _END_HEADERS = 1, 4
_CANCEL = 8
_ABORTED = 10  # gRPC's status: TensorFlow raises AbortedError, and does not make the call again


class _Direction:
    """One direction of a connection: bytes go through as they come, and between two frames there is room for others.

    Args:
        heard: is told the kind, the flags and the stream of each frame.
        preface: so many bytes come before the frames.
    """

    def __init__(
        self, source: socket.socket, sink: socket.socket, heard: Callable[[int, int, int], None], preface: int = 0
    ) -> None:
        self._source, self._sink, self._heard = source, sink, heard
        self._rest = preface  # of the frame that goes through
        self._head = b""
        self._lock = threading.Lock()

    def carry(self, at_end: Callable[[], object]) -> None:
        """Carry bytes until the source ends; then tell the sink so, which may go on in the other direction."""
        buffer = memoryview(bytearray(_CHUNK))
        with contextlib.suppress(OSError):  # one that breaks has ended
            while count := _received(self._source, buffer):
                try:
                    with self._lock:
                        self._note(buffer[:count])
                        self._sink.sendall(buffer[:count])
                except OSError:  # the sink is gone, which the other direction tells: so is the source
                    self._source.shutdown(socket.SHUT_RDWR)
                    return
            at_end()
            self._sink.shutdown(socket.SHUT_WR)

    def insert(self, frames: bytes) -> bool:
        """Send frames of one's own; return False where there is no room for them now."""
        if not self._lock.acquire(timeout=_LOCK_SECONDS):
            return False
        try:
            if self._rest or self._head:
                return False
            self._sink.sendall(frames)
        except OSError:  # it is gone
            return False
        finally:
            self._lock.release()
        return True

    def _note(self, block: memoryview) -> None:
        """Find the frames in what comes next."""
        at = 0
        while at < len(block):
            if self._rest:
                passed = min(self._rest, len(block) - at)
                self._rest -= passed
            else:
                passed = min(_HEAD - len(self._head), len(block) - at)
                self._head += block[at : at + passed]
                if len(self._head) == _HEAD:
                    self._rest = int.from_bytes(self._head[:3], "big")
                    self._heard(self._head[3], self._head[4], int.from_bytes(self._head[5:], "big"))
                    self._head = b""
            at += passed


class ProxiedConnection:
    """One connection, with the calls on it that wait for an answer.

    Args:
        client, server: both ends, which are the caller's to close.
    """

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._ends = client, server
        self._there = _Direction(client, server, self._asked, _PREFACE)
        self._back = _Direction(server, client, self._answered)
        self._since: dict[int, float] = {}  # when each call was made, by its stream
        self._begun: set[int] = set()  # those whose answer has begun

    def carry_there(self, at_end: Callable[[], object]) -> None:
        """Carry what the client says, to its end."""
        self._there.carry(at_end)

    def carry_back(self, at_end: Callable[[], object]) -> None:
        """Carry what the server says, to its end."""
        self._back.carry(at_end)

    def end_calls(self, why: str, patience: float) -> int:
        """End the calls that have waited so many seconds; return how many.

        The client hears `why`. The server is told, so that it does no more for them.
        """
        now = time.monotonic()
        ended = [stream for stream, since in list(self._since.items()) if now - since >= patience]
        for stream in ended:
            reset = _frame(_RST_STREAM, 0, stream, struct.pack(">I", _CANCEL))
            if not self._back.insert(reset if stream in self._begun else _aborted(stream, why)):
                self.close()  # in the middle of an answer: nothing else ends it
                return len(ended)
            self._over(stream)
            self._there.insert(reset)
        return len(ended)

    def close(self) -> None:
        """End the connection, on both sides."""
        for one in self._ends:
            with contextlib.suppress(OSError):  # not connected any more
                one.shutdown(socket.SHUT_RDWR)  # ends the threads that wait for it; closing alone would not

    def _asked(self, kind: int, _: int, stream: int) -> None:
        if kind == _HEADERS:
            self._since[stream] = time.monotonic()
        elif kind == _RST_STREAM:
            self._over(stream)

    def _answered(self, kind: int, flags: int, stream: int) -> None:
        if kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self._over(stream)
        elif kind == _HEADERS and stream in self._since:
            self._begun.add(stream)

    def _over(self, stream: int) -> None:
        self._since.pop(stream, None)
        self._begun.discard(stream)


def stand_in() -> socket.socket:
    """Return a stream in the place of a server that is lost: who connects can make calls, which wait until ended."""
    here, there = socket.socketpair()
    there.sendall(wire.HEARTBEAT)  # settings, before which no client makes calls
    threading.Thread(target=_take_all, args=[there], name="tfk8s-stand-in", daemon=True).start()
    return here


def _take_all(stream: socket.socket) -> None:
    with stream, contextlib.suppress(OSError):
        while stream.recv(_CHUNK):
            pass


def _aborted(stream: int, why: str) -> bytes:
    """Return the whole answer to a call: that it was aborted (gRPC's "Trailers-Only", doc/PROTOCOL-HTTP2.md)."""
    headers = {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-status": str(_ABORTED),
        "grpc-message": quote(why, safe=" /:;,()'=+@"),
    }
    payload = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
    return _frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, payload)


def _text(text: str) -> bytes:
    """Return a string as HPACK has it, its length being an integer of seven bits and more (RFC 7541, 5.1 and 5.2)."""
    size, more = len(text), []
    if size >= 0x7F:
        size, rest = 0x7F, size - 0x7F
        while rest > 0x7F:
            more.append(rest & 0x7F | 0x80)
            rest >>= 7
        more.append(rest)
    return bytes([size, *more]) + text.encode("ascii")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _received(source: socket.socket, buffer: memoryview) -> int:
    """Return how many bytes came; 0 where the source has ended or broken."""
    try:
        return source.recv_into(buffer)
    except OSError:
        return 0
