"""HTTP/2 frames, gRPC calls and protobuf messages, as far as TensorFlow's servers need them.

gRPC is HTTP/2 (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md). A single request needs so little of HTTP/2 that this file
does without a library. So a call works on any stream (a socket of another network namespace, a stream through the
Kubernetes API), ignores `http_proxy`, starts no threads, and costs no import. Standard library only: this file also
runs in tasks.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping

GET_STATUS = "/tensorflow.WorkerService/GetStatus"
CLEANUP_ALL = "/tensorflow.WorkerService/CleanupAll"
LIST_DEVICES = "/tensorflow.MasterService/ListDevices"
CREATE_SESSION = "/tensorflow.MasterService/CreateSession"

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # a client sends it before its frames (RFC 9113, 3.4)
HEAD_SIZE = 9  # bytes of a frame before its payload
DATA, HEADERS, RST_STREAM, SETTINGS, _PING, _GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
ACK, PADDED = 1, 8
_STREAM = 1
MAX_FRAME = 1 << 14  # bytes of a payload, unless the receiver allows more (RFC 9113, 4.2), as tfk8s never does
MAX_BODY = 1 << 22  # bytes of an answer; 16,000 devices have less
MAX_FIELDS = 1 << 16  # of a message
MAX_WINDOW = 2**31 - 1  # the server may send all it has at once
_BLOCK = 1 << 16  # has at most 7000 frames, so that the deadline is looked at often
_MAX_INTEGER = 2**64 - 1
_UNIMPLEMENTED = 12


class ProbeError(Exception):
    """The answer is not one of a TensorFlow server; the text has the difference."""


class GrpcError(ProbeError):
    """The server refused the call; `status` and `message` are gRPC's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the server refused (gRPC status {status}{': ' + message if message else ''})")
        self.status, self.message = status, message


def call(stream: socket.socket, method: str, timeout: float, request: bytes = b"") -> bytes:
    """Make one gRPC call on a connected stream, which can't be used again; return the serialized response.

    Args:
        stream: connected to the server.
        method: the path, such as `GET_STATUS`.
        timeout: in seconds.
        request: the serialized request.

    Raises:
        ProbeError: the answer is not one of a TensorFlow server, or the server refused.
        OSError: the stream broke, or `timeout` ran out (TimeoutError).
    """
    deadline = time.monotonic() + timeout
    return PendingCall(stream, method, timeout, request).wait(deadline - time.monotonic())


class PendingCall:
    """A gRPC call, whose answer may be waited for several times. The arguments are those of `call`."""

    def __init__(self, stream: socket.socket, method: str, timeout: float, request: bytes = b"") -> None:
        self._stream, self._buffer, self._body = stream, bytearray(), bytearray()
        stream.settimeout(timeout)
        stream.sendall(request_frames(method, request))

    def wait(self, timeout: float) -> bytes:
        """Return the serialized response.

        Raises:
            ProbeError, OSError: as `call`. After a TimeoutError, the call goes on.
        """
        for kind, flags, payload in self._frames(time.monotonic() + timeout):
            if kind == SETTINGS and not flags & ACK:
                self._stream.sendall(frame(SETTINGS, ACK))
            elif kind == _PING and not flags & ACK:
                self._stream.sendall(frame(_PING, ACK, payload=payload))
            elif kind == DATA:
                self._body += unpadded(payload) if flags & PADDED else payload
                if len(self._body) > MAX_BODY:
                    raise ProbeError("the server's answer is too long")
            elif kind == HEADERS:
                _check_status(payload)
            elif kind in (RST_STREAM, _GOAWAY):
                raise ProbeError("the server ended the call without an answer")
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                return _message(bytes(self._body))
        raise ProbeError("the server closed the connection without an answer")

    def _frames(self, deadline: float) -> Iterator[tuple[int, int, bytes]]:
        """Yield kind, flags and payload of each frame until the server closes the connection."""
        while True:
            position = 0
            while len(self._buffer) - position >= HEAD_SIZE:
                size, kind, flags, _ = parse_head(self._buffer[position : position + HEAD_SIZE])
                if size > MAX_FRAME:
                    raise ProbeError("the server's answer is not HTTP/2: a frame is too long")
                end = position + HEAD_SIZE + size
                if len(self._buffer) < end:
                    break
                payload, position = bytes(self._buffer[position + HEAD_SIZE : end]), end
                yield kind, flags, payload
            del self._buffer[:position]
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError("timed out")
            self._stream.settimeout(remaining)
            chunk = self._stream.recv(_BLOCK)
            if not chunk:
                return
            self._buffer += chunk
            if self._buffer[:5] == b"HTTP/":
                raise ProbeError("a web server answers there, not a TensorFlow server")


def unpadded(payload: bytes) -> bytes:
    """Return the data of a padded frame, whose first byte is the size of the padding (RFC 9113, 6.1).

    Raises:
        ProbeError: the padding does not fit.
    """
    if not payload or payload[0] >= len(payload):
        raise ProbeError("the server's answer is not HTTP/2: the padding of a frame does not fit")
    return payload[1 : len(payload) - payload[0]]


# ---- HTTP/2 (RFC 9113) -------------------------------------------------------------------------------------------


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return an HTTP/2 frame."""
    return frame_head(len(payload), kind, flags, stream) + payload


def frame_head(size: int, kind: int, flags: int, stream: int) -> bytes:
    """Return the head of a frame whose payload has that size; `parse_head` reads it."""
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream)


# HTTP/2's servers acknowledge settings at once (RFC 9113, 6.5.3), gRPC's on threads of its transport. A busy server
# does so, too, while GetStatus waits for a thread which operations may hold for minutes.
HEARTBEAT = frame(SETTINGS)


def parse_head(head: bytes | bytearray | memoryview) -> tuple[int, int, int, int]:
    """Return the payload's size, the kind, the flags and the stream from the head of a frame."""
    return int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:HEAD_SIZE], "big")


def request_frames(method: str, message: bytes) -> bytes:
    """Return all that a client sends for one call."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(
        (
            PREFACE,
            frame(SETTINGS, payload=struct.pack(">HI", 4, MAX_WINDOW)),  # SETTINGS_INITIAL_WINDOW_SIZE
            frame(WINDOW_UPDATE, payload=struct.pack(">I", MAX_WINDOW - 65535)),
            frame(HEADERS, END_HEADERS, _STREAM, header_block(headers)),
            data_frames(_STREAM, grpc_message(message)),
        )
    )


def data_frames(stream: int, data: bytes) -> bytes:
    """Return the last frames of a stream, as small as every server takes them (SETTINGS_MAX_FRAME_SIZE)."""
    last = max(0, len(data) - 1) // MAX_FRAME * MAX_FRAME
    parts = (frame(DATA, 0, stream, data[start : start + MAX_FRAME]) for start in range(0, last, MAX_FRAME))
    return b"".join(parts) + frame(DATA, END_STREAM, stream, data[last:])


def header_block(headers: Mapping[str, str]) -> bytes:
    """Return headers as HPACK's literals without indexing, which need no table (RFC 7541, 6.2.2)."""
    return b"".join(b"\0" + _hpack_text(name) + _hpack_text(value) for name, value in headers.items())


def _hpack_text(text: str) -> bytes:
    """Return a string after its length, which is an integer of seven bits and more (RFC 7541, 5.1 and 5.2)."""
    data = text.encode()
    size = bytes([len(data)]) if len(data) < 0x7F else b"\x7f" + varint(len(data) - 0x7F)
    return size + data


# ---- gRPC --------------------------------------------------------------------------------------------------------

# gRPC's C++ server writes header names and values as plain literals. It leaves to HPACK's tables only headers other
# than the status of a failed call.
_STATUS = re.compile(rb"grpc-status[\x01\x02]([0-9]{1,2})")
_MESSAGE = b"grpc-message"


def grpc_message(message: bytes) -> bytes:
    """Return a serialized message as gRPC sends it, without compression."""
    return struct.pack(">BI", 0, len(message)) + message


def _message(body: bytes) -> bytes:
    if len(body) < 5 or body[0] != 0 or len(body) != 5 + int.from_bytes(body[1:5], "big"):
        raise ProbeError("the server's answer is not a gRPC message")
    return body[5:]


def _check_status(headers: bytes) -> None:
    status = _STATUS.search(headers)
    if status is None or int(status[1]) == 0:
        return
    if int(status[1]) == _UNIMPLEMENTED:
        raise ProbeError("a gRPC server answers there, but not a TensorFlow server")
    raise GrpcError(int(status[1]), _text_after(_MESSAGE, headers))


def _text_after(name: bytes, headers: bytes) -> str:
    """Return the value of a header, which stands after the value's length (RFC 7541, 5.1)."""
    start = headers.find(name) + len(name)
    if start < len(name) or start >= len(headers):
        return ""
    size, start = headers[start] & 0x7F, start + 1
    if size == 0x7F:
        more, start = _read_varint(headers, start)
        size += more
    return headers[start : start + size].decode(errors="replace")


# ---- protobuf (protobuf.dev/programming-guides/encoding) -----------------------------------------------------------


def field(number: int, value: bytes | str | int) -> bytes:
    """Return a field of a serialized message: a message, a string, or an integer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed64_field(number: int, value: int) -> bytes:
    """Return a field of the type fixed64 of a serialized message."""
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def varint(value: int) -> bytes:
    """Return an integer in groups of seven bits, the lowest first."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*data, value))


def fields(message: bytes, most: int = MAX_FIELDS) -> Iterator[tuple[int, bytes | int]]:
    """Yield the number and value of each field of a serialized message.

    Raises:
        ProbeError: the bytes are not a message, or have more than `most` fields.
    """
    position = 0
    while position < len(message):
        if (most := most - 1) < 0:
            raise ProbeError("the server's answer has too many fields")
        tag, position = _read_varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _read_varint(message, position)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, position = _read_varint(message, position)
        if size is None or position + size > len(message):
            raise ProbeError("the server's answer is not a message of TensorFlow's")
        data = message[position : position + size]
        yield tag >> 3, data if kind == 2 else int.from_bytes(data, "little")
        position += size


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return an integer of at most 64 bits, which take ten groups of seven bits, and the position after the integer."""
    value = 0
    for shift, byte in zip(range(0, 70, 7), message[position : position + 10], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MAX_INTEGER, position + shift // 7 + 1
    if len(message) - position < 10:
        raise ProbeError("the server's answer ends in the middle")
    raise ProbeError("the server's answer is not a message of TensorFlow's")
