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
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tfk8s.task import wire
from tfk8s.task.wire import GET_STATUS, LIST_DEVICES, _fields, call


class Device(NamedTuple):
    """One device of a task.

    Attributes:
        name: in full, such as "/job:worker/replica:0/task:1/device:GPU:0".
        kind: "CPU", "GPU", ….
        memory: bytes that TensorFlow may use.
        incarnation: a number that a restarted server gets anew.
        description: the hardware, in the driver's words; "" for a CPU.
    """

    name: str
    kind: str
    memory: int
    incarnation: int
    description: str


def get_status(stream: socket.socket, timeout: float) -> list[Device]:
    """Return the devices of the server behind a connected stream, within `timeout` seconds.

    The stream can't be used again.

    Raises:
        ProbeError: something else than a TensorFlow server answered, or the server refused.
        OSError: the stream broke, or `timeout` ran out (TimeoutError).
    """
    return [device for field, device in _devices(call(stream, GET_STATUS, timeout)) if field == 1]


def list_devices(stream: socket.socket, timeout: float) -> list[Device]:
    """Return the devices of the whole cluster, from the master behind a connected stream.

    The master answers when, and only when, every task answers the master.

    Raises:
        ProbeError, OSError: as `get_status`.
    """
    return [device for _, device in _devices(call(stream, LIST_DEVICES, timeout))]


# ---- protobuf ----------------------------------------------------------------------------------------------------


def _devices(message: bytes) -> Iterator[tuple[int, Device]]:
    """Yield each tensorflow.DeviceAttributes of a message, with the number of the field that it stands in."""
    for number, value in _fields(message):
        if isinstance(value, bytes):
            fields = dict(_fields(value))
            name, kind, description = (fields.get(key, b"") for key in (1, 2, 7))
            assert isinstance(name, bytes)
            assert isinstance(kind, bytes)
            assert isinstance(description, bytes)
            yield (
                number,
                Device(
                    name.decode(), kind.decode(), _number(fields.get(4)), _number(fields.get(6)), description.decode()
                ),
            )


def _number(value: bytes | int | None) -> int:
    return value if isinstance(value, int) else 0


CREATE_SESSION = "/tensorflow.MasterService/CreateSession"
_INVALID_ARGUMENT = 3

# Field 1, graph_def: field 4, versions: field 2, min_consumer, a version that no TensorFlow has.
_GRAPH_OF_THE_FUTURE = b"\x0a\x08\x22\x06\x10\xff\x93\xeb\xdc\x03"
MOST_NAMED = 250  # devices in one request, which is one frame of HTTP/2
_VERSION = re.compile(r" for TensorFlow ([^\s,]+?)\.(?:\s|$)")


def get_version(stream: socket.socket, device: str, timeout: float) -> str:
    """Return the version of TensorFlow that a server is, such as "2.21.0"; "" where it does not say.

    A server that is given a graph which only later versions can read says why it refuses
    (CheckVersions in tensorflow/core/framework/versions.cc), and which version it is. No session comes of it.

    Args:
        stream: connected to the server; it can't be used again.
        device: the task's own, "/job:worker/task:1": the server shall ask no other about it.
        timeout: in seconds.

    Raises:
        ProbeError, OSError: as `probe.get_status`.
    """
    found = _VERSION.search(_refusal(stream, [device], timeout))
    return found[1] if found else ""


def can_reach(stream: socket.socket, devices: Sequence[str], timeout: float) -> bool:
    """Return whether the server behind a stream reaches tasks, as a session's master has to; no session comes of it.

    A server connects to addresses that it looked up before: it may be deaf to a task that answers everybody else.

    Args:
        stream: connected to the server; it can't be used again.
        devices: which tasks, "/job:worker/task:1", at most `MOST_NAMED`; none is all of its cluster.
        timeout: in seconds.

    Raises:
        ProbeError, OSError: as `probe.get_status`, but for a timeout.
    """
    try:
        _refusal(stream, devices, timeout)
    except TimeoutError:
        return False
    return True


def _refusal(stream: socket.socket, devices: Sequence[str], timeout: float) -> str:
    """Return why a server refuses a session with a graph of the future, which it does once it has reached tasks."""
    filters = b"".join(b"\x22" + _sized(device.encode()) for device in devices)  # field 4, device_filters
    try:
        wire.call(stream, CREATE_SESSION, timeout, _GRAPH_OF_THE_FUTURE + b"\x12" + _sized(filters))  # field 2, config
    except wire.GrpcError as refusal:
        if refusal.status != _INVALID_ARGUMENT:
            raise
        return refusal.message
    return ""


def _sized(data: bytes) -> bytes:
    """Return bytes after their number, as protobuf writes them: fewer than 16,384."""
    size = len(data)
    return (bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])) + data
