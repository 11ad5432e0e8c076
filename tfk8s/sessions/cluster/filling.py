"""Gives the sessions of any program the ClusterSpec of an elastic cluster, on their way to the master.

A program that knows nothing of tfk8s creates sessions without a ClusterSpec, and with a forward's address as the
target. So a forward appends fields to the request `CreateSession`: messages merge, and the last value of a text counts
(protobuf.dev/programming-guides/encoding). HTTP/2's windows count the appended bytes, too. They are sent as the server
allows, and the client gets less of the server's next allowance. Standard library only.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tfk8s.sessions.cluster import elastic
from tfk8s.sessions.cluster.frames import PREFIX_SIZE, FrameSplitter
from tfk8s.task import wire
from tfk8s.task.wire import DATA, END_STREAM, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE

_FIRST_WINDOW = 65535
_TABLE_SIZE, _INITIAL_WINDOW = 1, 4  # settings (RFC 9113, 6.5.2)
_NO_TABLE = struct.pack(">HI", _TABLE_SIZE, 0)
_PATH = wire.CREATE_SESSION.encode()
_CONFIG = 2  # a field of a CreateSessionRequest
_FILTERS, _CLUSTER_DEF, _ISOLATE = 4, 14, 15  # fields of a ConfigProto


@dataclass(frozen=True)
class SessionFields:
    """The fields that sessions of a cluster lack.

    Attributes:
        addresses: the address of each task, by its short name.
        master: the task to which the forward leads.
    """

    addresses: Mapping[str, str]
    master: str

    @property
    def size(self) -> int:
        """The number of bytes that `after` returns."""
        return len(elastic.session_fields(self.master, self.addresses, is_filtered=True))

    def after(self, config: bytes) -> bytes:
        """Return the bytes to append to a request with that `ConfigProto`."""
        try:
            own = dict(wire.fields(config))
        except wire.ProbeError:  # the server refuses it
            own = {}
        if _CLUSTER_DEF in own:
            return _unknown_field(self.size)
        isolate, is_filtered = bool(own.get(_ISOLATE)), _FILTERS in own
        fields = elastic.session_fields(self.master, self.addresses, isolate=isolate, is_filtered=is_filtered)
        return fields if is_filtered else fields + _unknown_field(self.size - len(fields))


GetFields = Callable[[], SessionFields | None]


def _unknown_field(size: int) -> bytes:
    """Return a field of that size which no message has; its bytes are zero."""
    content = size - 7  # two bytes for the field, and five for its size
    digits = bytes((content >> shift & 0x7F) | (0x80 if shift < 28 else 0) for shift in range(0, 35, 7))
    return wire.varint(1000 << 3 | 2) + digits + bytes(content)


@dataclass
class _Request:
    """A CreateSession on its way.

    Attributes:
        fields: what it lacks.
        window: how many bytes the server takes on its stream.
        received: how many bytes of the message have come, with gRPC's prefix.
        pending: the bytes to append that the server does not take yet; None before the client's end.
    """

    fields: SessionFields
    window: int
    received: int = 0
    pending: bytes | None = None
    config: bytes = b""
    _head: bytes = b""
    _skip: int = 0
    _is_config: bool = False

    def read(self, part: memoryview) -> None:
        """Find the `ConfigProto` in the next bytes of the message, which may start with the prefix."""
        skipped = max(0, PREFIX_SIZE - self.received)
        self.received += len(part)
        part = part[skipped:]
        while part:
            if self._skip:
                count = min(self._skip, len(part))
                if self._is_config:
                    self.config += part[:count]
                self._skip -= count
                part = part[count:]
                continue
            self._head += part[:1]
            part = part[1:]
            if len(self._head) > 1 and self._head[-1] < 0x80:
                number, size = self._head[0] >> 3, _varint(self._head[1:])
                self._is_config, self._skip, self._head = number == _CONFIG, size, b""


def _is_headers(kind: int) -> bool:
    return kind == HEADERS


def _is_about_windows(kind: int) -> bool:
    return kind in (SETTINGS, WINDOW_UPDATE)


def _is_plain(part: memoryview) -> bool:
    """Return whether a message begins with gRPC's prefix, and is not compressed."""
    return len(part) >= PREFIX_SIZE and part[0] == 0


def _varint(data: bytes) -> int:
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))


class FillingStream:
    """A connection to a master's server; programs that send requests there get the ClusterSpec for their sessions.

    Args:
        server: the connection.
        get_fields: returns what a session that is created now lacks; None if nothing.
    """

    def __init__(self, server: socket.socket, get_fields: GetFields) -> None:
        self._server, self._get_fields = server, get_fields
        self._state, self._sending = threading.Lock(), threading.Lock()
        self._sent, self._answers = FrameSplitter(len(wire.PREFACE)), FrameSplitter()
        self._requests: dict[int, _Request] = {}
        self._window, self._initial_window = _FIRST_WINDOW, _FIRST_WINDOW
        self._owed = 0  # bytes of the server's next allowances that the client does not get
        self._received = b""

    def shutdown(self, how: int) -> None:
        """As `socket.shutdown`."""
        self._server.shutdown(how)

    # ---- from the client to the server ----

    def sendall(self, data: memoryview | bytes) -> None:
        """Send what came from the client."""
        with self._sending:
            with self._state:
                block = memoryview(data)
                if not self._passes_to_server(block):
                    block = memoryview(b"".join(map(bytes, self._edit_requests(block))))
            self._server.sendall(block)
        self._send_pending()

    def _passes_to_server(self, data: memoryview) -> bool:
        """Return whether the next bytes stay as they are, as most do; then take note of them."""
        heads = None if self._requests else self._sent.heads(data, _is_headers)
        if heads is None:
            return False
        if any(_is_headers(head.kind) and _PATH in bytes(data[head.start : head.start + head.size]) for head in heads):
            return False
        self._sent.skip(data, heads)
        self._window -= sum(head.size for head in heads if head.kind == DATA)
        return True

    def _send_pending(self) -> None:
        """Send the appended bytes that the server takes now, unless the client is in the middle of a frame."""
        if not any(request.pending for request in list(self._requests.values())):
            return
        with self._sending:
            with self._state:
                waiting = [] if self._sent.is_inside else [
                    stream for stream, request in self._requests.items() if request.pending
                ]  # fmt: skip
                frames = [frame for stream in waiting for frame in self._flush(stream)]
            if frames:
                self._server.sendall(b"".join(frames))

    def _edit_requests(self, data: memoryview) -> Iterator[bytes | memoryview]:
        for head, part, is_end in self._sent.parts(data, _is_headers):
            if head is None:  # the preface
                yield part
                continue
            size, kind, flags, stream = wire.parse_head(head)
            if kind == HEADERS and _PATH in bytes(part) and (fields := self._get_fields()) is not None:
                self._requests[stream] = _Request(fields, self._initial_window)
            elif kind == RST_STREAM:
                self._requests.pop(stream, None)
            elif kind == DATA and self._sent.is_start:
                self._window -= size
            request = self._requests.get(stream) if kind == DATA else None
            if request is not None and request.received == 0 and not _is_plain(part):
                request = self._requests.pop(stream) and None
            if request is None:
                yield from ((head, part) if self._sent.is_start else (part,))
                continue
            if self._sent.is_start:
                request.window -= size
                yield wire.frame_head(size, kind, flags & ~END_STREAM, stream)
            yield self._edit_message(request, part)
            if is_end and flags & END_STREAM:
                request.pending = request.fields.after(request.config)
                yield from self._flush(stream)

    @staticmethod
    def _edit_message(request: _Request, part: memoryview) -> bytes | memoryview:
        """Return a part of a message; its size, at the beginning, counts what will be appended."""
        is_first = request.received == 0
        request.read(part)
        if not is_first:
            return part
        flag, size = struct.unpack(">BI", part[:PREFIX_SIZE])
        return struct.pack(">BI", flag, size + request.fields.size) + bytes(part[PREFIX_SIZE:])

    def _flush(self, stream: int) -> Iterator[bytes]:
        """Yield the frames with the appended bytes, as far as the server takes them."""
        request = self._requests[stream]
        while request.pending:
            size = min(len(request.pending), wire.MAX_FRAME, self._window, request.window)
            if size <= 0:
                return
            part, request.pending = request.pending[:size], request.pending[size:]
            self._window -= size
            request.window -= size
            self._owed += size
            yield wire.frame(DATA, 0 if request.pending else END_STREAM, stream, part)
        del self._requests[stream]

    # ---- from the server to the client ----

    def recv_into(self, buffer: memoryview) -> int:
        """Receive what goes to the client, as `socket.recv_into`."""
        while not self._received and (count := self._server.recv_into(buffer)):
            with self._state:
                if not (passes := self._passes_to_client(buffer[:count])):
                    self._received = b"".join(map(bytes, self._edit_answers(memoryview(bytes(buffer[:count])))))
            self._send_pending()
            if passes:
                return count
        data, self._received = self._received[: len(buffer)], self._received[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def _passes_to_client(self, data: memoryview) -> bool:
        """Return whether the next bytes stay as they are, as most do; then take note of them."""
        heads = None if self._owed or self._requests else self._answers.heads(data, _is_about_windows)
        if heads is None or any(head.kind == SETTINGS and not head.flags for head in heads):
            return False
        self._answers.skip(data, heads)
        for head in heads:
            if head.kind == WINDOW_UPDATE and head.stream == 0:
                self._window += int.from_bytes(data[head.start : head.start + head.size], "big")
        return True

    def _edit_answers(self, data: memoryview) -> Iterator[bytes | memoryview]:
        for head, part, _ in self._answers.parts(data, _is_about_windows):
            assert head is not None
            _, kind, flags, stream = wire.parse_head(head)
            if kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM):  # the server takes no more of it
                self._requests.pop(stream, None)
            if kind == SETTINGS and not flags:
                yield self._edit_settings(bytes(part))
            elif kind == WINDOW_UPDATE:
                yield self._edit_window(stream, bytes(part))
            else:
                yield from ((head, part) if self._answers.is_start else (part,))

    def _edit_settings(self, payload: bytes) -> bytes:
        """Return the server's settings; the client has to write each header in full, so that `_PATH` can be found."""
        for number, value in struct.iter_unpack(">HI", payload):
            if number == _INITIAL_WINDOW:
                for request in self._requests.values():
                    request.window += value - self._initial_window
                self._initial_window = value
        return wire.frame(SETTINGS, payload=payload + _NO_TABLE)

    def _edit_window(self, stream: int, payload: bytes) -> bytes:
        (increment,) = struct.unpack(">I", payload)
        kept = 0
        if stream == 0:
            self._window += increment
            kept = min(self._owed, increment)
            self._owed -= kept
        elif stream in self._requests:
            self._requests[stream].window += increment
        return wire.frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment - kept)) if increment > kept else b""
