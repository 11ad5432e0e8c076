"""Asks a TensorFlow server what it has, without TensorFlow and without a gRPC library.

A TensorFlow server answers `/tensorflow.WorkerService/GetStatus` with its devices in about a millisecond, to an empty
request; `grpc.health.v1` it does not implement. gRPC is HTTP/2 (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md), and
one request without a body needs so little of it that it is written out here: it then works on any stream (a socket of
another network namespace, a stream through the Kubernetes API), ignores `http_proxy`, starts no threads, and costs
no import. Standard library only: this file also runs inside tasks.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterator

GET_STATUS = "/tensorflow.WorkerService/GetStatus"
LIST_DEVICES = "/tensorflow.MasterService/ListDevices"

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _PADDED, _END_HEADERS = 1, 1, 8, 4
_STREAM = 1
_WINDOW = 2**31 - 1  # let the server send all it has at once
_UNIMPLEMENTED = 12


class ProbeError(Exception):
    """The server did not answer as a TensorFlow server does; the text says how."""


class GrpcError(ProbeError):
    """The server refused; `status` and `message` are gRPC's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the server refused (gRPC status {status}{': ' + message if message else ''})")
        self.status, self.message = status, message


def call(stream: socket.socket, method: str, timeout: float, request: bytes = b"") -> bytes:
    """Make one gRPC call, with an empty request where none is given; return the serialized response.

    Raises:
        ProbeError, OSError: as `get_status`.
    """
    deadline = time.monotonic() + timeout
    stream.settimeout(timeout)
    stream.sendall(_request(method, request))
    body = b""
    for kind, flags, payload in _frames(stream, deadline):
        if kind == _SETTINGS and not flags & _ACK:
            stream.sendall(_frame(_SETTINGS, _ACK))
        elif kind == _PING and not flags & _ACK:
            stream.sendall(_frame(_PING, _ACK, payload=payload))
        elif kind == _DATA:
            body += payload[1 : -payload[0] or None] if flags & _PADDED else payload
        elif kind == _HEADERS:
            _check_status(payload)
        elif kind in (_RST_STREAM, _GOAWAY):
            raise ProbeError("the server ended the call without an answer")
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            return _message(body)
    raise ProbeError("the server closed the connection without an answer")


# ---- HTTP/2 (RFC 9113) -------------------------------------------------------------------------------------------


def _request(method: str, message: bytes) -> bytes:
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    settings = struct.pack(">HI", 4, _WINDOW)  # SETTINGS_INITIAL_WINDOW_SIZE
    return b"".join(
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            _frame(_SETTINGS, payload=settings),
            _frame(_WINDOW_UPDATE, payload=struct.pack(">I", _WINDOW - 65535)),
            _frame(_HEADERS, _END_HEADERS, _STREAM, b"".join(map(_literal, headers, headers.values()))),
            _frame(_DATA, _END_STREAM, _STREAM, struct.pack(">BI", 0, len(message)) + message),  # not compressed
        )
    )


def _literal(name: str, value: str) -> bytes:
    """Return a header as HPACK's literal without indexing, for which no table is needed (RFC 7541, 6.2.2)."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))


def _frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


# HTTP/2's servers acknowledge settings at once (RFC 9113, 6.5.3), gRPC's on threads of its transport: a sign of life
# that a busy server gives too, where GetStatus waits for a thread which operations may hold for minutes.
HEARTBEAT = _frame(_SETTINGS)


def _frames(stream: socket.socket, deadline: float) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, flags and payload of each frame until the server closes the connection."""
    buffer = b""
    while True:
        while len(buffer) >= 9 and len(buffer) >= 9 + (size := int.from_bytes(buffer[:3], "big")):
            yield buffer[3], buffer[4], buffer[9 : 9 + size]
            buffer = buffer[9 + size :]
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        stream.settimeout(remaining)
        chunk = stream.recv(1 << 20)
        if not chunk:
            return
        buffer += chunk
        if buffer[:5] == b"HTTP/":
            raise ProbeError("a web server answers there, not a TensorFlow server")


# gRPC's C++ server writes header names and values as plain literals; what it leaves to HPACK's tables is never the
# status of a failed call.
_STATUS = re.compile(rb"grpc-status[\x01\x02]([0-9]{1,2})")
_MESSAGE = b"grpc-message"


def _check_status(headers: bytes) -> None:
    status = _STATUS.search(headers)
    if status is None or int(status[1]) == 0:
        return
    if int(status[1]) == _UNIMPLEMENTED:
        raise ProbeError("a gRPC server answers there, but not a TensorFlow server")
    raise GrpcError(int(status[1]), _text_after(_MESSAGE, headers))


def _text_after(name: bytes, headers: bytes) -> str:
    """Return the value of a header, whose length is an integer of seven bits and more (RFC 7541, 5.1)."""
    start = headers.find(name) + len(name)
    if start < len(name) or start >= len(headers):
        return ""
    size, start = headers[start] & 0x7F, start + 1
    if size == 0x7F:
        more, start = _varint(headers, start)
        size += more
    return headers[start : start + size].decode(errors="replace")


def _message(body: bytes) -> bytes:
    if len(body) < 5 or body[0] != 0 or len(body) != 5 + int.from_bytes(body[1:5], "big"):
        raise ProbeError("the server's answer is not a gRPC message")
    return body[5:]


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the number and value of each field of a serialized message."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, position = _varint(message, position)
        if size is None or position + size > len(message):
            raise ProbeError("the server's answer is not a message of TensorFlow's")
        data = message[position : position + size]
        yield tag >> 3, data if kind == 2 else int.from_bytes(data, "little")
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ProbeError("the server's answer ends in the middle")
