"""Requests to a TensorFlow server about its devices, its version and its connections, without TensorFlow.

A TensorFlow server answers an empty `GetStatus` with its devices in about a millisecond. It does not implement
`grpc.health.v1`. Standard library only: this file also runs in tasks.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tfk8s.task import wire

MAX_NAMED = 250  # devices in one request, so that the first windows of HTTP/2 have room for the request

_MAX_DEVICES, _MAX_ATTRIBUTES = 1 << 14, 32  # in one answer; TensorFlow's devices have nine attributes
_INVALID_ARGUMENT = 3
_FAR_FUTURE = 999_999_999  # a version of graphs that no TensorFlow reads
# CreateSessionRequest: field 1, graph_def: field 4, versions: field 2, min_consumer.
_GRAPH_OF_THE_FUTURE = wire.field(1, wire.field(4, wire.field(2, _FAR_FUTURE)))
_VERSION = re.compile(r" for TensorFlow ([^\s,]+?)\.(?:\s|$)")


class Device(NamedTuple):
    """One device of a task.

    Attributes:
        name: in full, such as "/job:worker/replica:0/task:1/device:GPU:0".
        kind: "CPU", "GPU", ….
        memory: bytes that TensorFlow may use; for a CPU, a constant of TensorFlow (256 MiB).
        incarnation: a random number of the server, which another server in its place does not have.
        description: the hardware, in the driver's words; "" for a CPU.
    """

    name: str
    kind: str
    memory: int
    incarnation: int
    description: str

    @property
    def own_memory(self) -> int | None:
        """The bytes of the device's own memory that TensorFlow may use; None for a CPU, which has the task's."""
        return None if self.kind == "CPU" else self.memory


def get_status(stream: socket.socket, timeout: float) -> list[Device]:
    """Return the devices of the server behind a connected stream, within `timeout` seconds.

    The stream can't be used again.

    Raises:
        ProbeError, OSError: as `wire.call`.
    """
    return [device for field, device in _devices(wire.call(stream, wire.GET_STATUS, timeout)) if field == 1]


def all_devices(message: bytes) -> list[Device]:
    """Return the devices of the whole cluster from the answer to `wire.LIST_DEVICES`.

    A master answers as soon as every task has answered the master.
    """
    return [device for _, device in _devices(message)]


def _devices(message: bytes) -> Iterator[tuple[int, Device]]:
    """Yield each tensorflow.DeviceAttributes of a message, with the number of its field."""
    for number, value in wire.fields(message, _MAX_DEVICES):
        if isinstance(value, bytes):
            attributes = dict(wire.fields(value, _MAX_ATTRIBUTES))
            texts = {key: text for key, text in attributes.items() if isinstance(text, bytes)}
            numbers = {key: number for key, number in attributes.items() if isinstance(number, int)}
            name, kind, description = (texts.get(key, b"").decode(errors="replace") for key in (1, 2, 7))
            yield number, Device(name, kind, numbers.get(4, 0), numbers.get(6, 0), description)


def get_version(stream: socket.socket, device: str, timeout: float) -> str:
    """Return a server's version of TensorFlow, such as "2.21.0"; "" if the server does not report one.

    The request has a graph that only later versions can read. The server refuses, and gives the reason with its own
    version (CheckVersions in tensorflow/core/framework/versions.cc). No session is created.

    Args:
        stream: connected to the server; it can't be used again.
        device: the task's own, "/job:worker/task:1", so that the server asks no other task.
        timeout: in seconds.

    Raises:
        ProbeError, OSError: as `wire.call`.
    """
    try:
        wire.call(stream, wire.CREATE_SESSION, timeout, reach_request([device]))
    except wire.GrpcError as refusal:
        if refusal.status != _INVALID_ARGUMENT:
            raise
        version = _VERSION.search(refusal.message)
        return version[1] if version else ""
    return ""


def reach_request(devices: Sequence[str], more: bytes = b"") -> bytes:
    """Return a request for `wire.CREATE_SESSION` that a server refuses once it has reached tasks.

    No session is created.

    A server uses addresses that it looked up before, so it may fail to reach a task that answers everybody else.

    Args:
        devices: the tasks, "/job:worker/task:1", at most `MAX_NAMED`; none means all tasks of its cluster.
        more: more fields of the request, for an elastic server (`sessions.cluster.elastic`).
    """
    filters = b"".join(wire.field(4, device) for device in devices)  # device_filters
    return _GRAPH_OF_THE_FUTURE + wire.field(2, filters) + more  # config


def clear_containers(stream: socket.socket, containers: Sequence[str | bytes], timeout: float) -> None:
    """Remove the variables in containers from the server behind a connected stream; no container means the default one.

    Raises:
        ProbeError, OSError: as `wire.call`.
    """
    wire.call(stream, wire.CLEANUP_ALL, timeout, b"".join(wire.field(1, name) for name in containers))
