"""What a TensorFlow server tells by refusing a session: which version it is, and whether it reaches other tasks.

No call asks for either. Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from tfk8s import probe

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


def reaches(stream: socket.socket, devices: Sequence[str], timeout: float) -> bool:
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
        probe.call(stream, CREATE_SESSION, timeout, _GRAPH_OF_THE_FUTURE + b"\x12" + _sized(filters))  # field 2, config
    except probe.Refused as refusal:
        if refusal.status != _INVALID_ARGUMENT:
            raise
        return refusal.message
    return ""


def _sized(data: bytes) -> bytes:
    """Return bytes after their number, as protobuf writes them: fewer than 16,384."""
    size = len(data)
    return (bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])) + data
