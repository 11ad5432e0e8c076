"""Ends connections of this process to servers that do not answer.

A connection to a server that is frozen, or whose machine or network is gone, never ends by itself. shutdown(2) works on
the connection, whichever descriptor names it: a library reads the end, as of a server that dies, and connects again.
Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

_DESCRIPTORS = "/proc/self/fd"

Peers = Collection[tuple[str, int]]  # addresses and ports


def peers(host: str, port: int) -> Peers:
    """Return the addresses and ports that a name has now, which another pod may get later."""
    with contextlib.suppress(OSError):
        return {(str(info[4][0]), port) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    return ()


def end_connections(addresses: Peers) -> int:
    """End the connections of this process to some addresses; return the number of connections."""
    ended = 0
    for stream in _sockets():
        with contextlib.suppress(OSError), stream:
            if peer(stream) in addresses:
                stream.shutdown(socket.SHUT_RDWR)
                ended += 1
    return ended


def peer(stream: socket.socket) -> tuple[str, int] | None:
    """Return the address and the port that a stream leads to; None if this is no address of the Internet Protocol.

    Raises:
        OSError: the stream is not connected.
    """
    name = stream.getpeername()
    if stream.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    address = ipaddress.ip_address(name[0].partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address), name[1]


def _sockets() -> Iterator[socket.socket]:
    for descriptor in (int(path.name) for path in Path(_DESCRIPTORS).iterdir()):
        with contextlib.suppress(OSError):  # closed meanwhile, or no socket
            copy = os.dup(descriptor)
            try:
                stream = socket.socket(fileno=copy)
            except OSError:
                os.close(copy)
                raise
            yield stream
