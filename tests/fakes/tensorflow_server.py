"""The answers of a TensorFlow server, as bytes for a stream."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tfk8s.task import wire


def device(
    name: str = "", kind: str = "CPU", *, memory: int = 256 << 20, incarnation: int = 0, description: str = ""
) -> bytes:
    """Return a serialized tensorflow.DeviceAttributes."""
    number = bytes([6 << 3 | 1]) + struct.pack("<Q", incarnation) if incarnation else b""  # a fixed64
    texts = wire.field(1, name) + wire.field(2, kind)
    return texts + wire.field(4, memory) + number + (wire.field(7, description) if description else b"")


def answer(own: Iterable[bytes], others: Iterable[bytes] = ()) -> bytes:
    """Return the answer to GetStatus, which has the server's own devices, or to ListDevices."""
    message = [*(wire.field(1, one) for one in own), *(wire.field(2, other) for other in others)]
    return response(b"".join(message))


def response(message: bytes) -> bytes:
    """Return the answer to a call: a serialized message."""
    return wire.frame(wire.DATA, wire.END_STREAM, 1, wire.grpc_message(message))


def refusal(status: int, message: str = "") -> bytes:
    """Return the answer to a refused call, as gRPC's C++ server writes it."""
    headers = {"grpc-status": str(status), **({"grpc-message": message} if message else {})}
    return wire.frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, 1, b"\x88" + wire.header_block(headers))
