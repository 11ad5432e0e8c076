"""The sockets in this process' network: those that listen, and the connections that come from elsewhere."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tfk8s.task import activity

_LISTEN = "0A"  # a state in /proc/net/tcp

# Netlink's messages (sock_diag(7), linux/inet_diag.h).
_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")  # the family, the protocol, extensions, the states
_ANSWER = struct.Struct("=BBxx2sxx16s16xI20xII")  # family, state, port, address, device; user, inode
_ANSWER_TIMEOUT = 2.0


class Listener(NamedTuple):
    """A socket that listens.

    Attributes:
        host, port: the address.
        device: the number of the device to which the socket is bound; 0 for none.
        user: the id of the socket's user.
        inode: of the socket.
    """

    host: str
    port: int
    device: int
    user: int
    inode: int

    @property
    def is_open(self) -> bool:
        """True if other machines may connect."""
        return self.device != socket.if_nametoindex("lo") and not ipaddress.ip_address(self.host).is_loopback


def listeners() -> list[Listener]:
    """Return the TCP sockets that listen in this network.

    Raises:
        OSError: the kernel does not tell.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_TIMEOUT)
        return [item for family in (socket.AF_INET, socket.AF_INET6) for item in _dump(kernel, family)]


def _dump(kernel: socket.socket, family: int) -> Iterator[Listener]:
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 1 << int(_LISTEN, 16))
    kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, family, 0) + request)
    while True:
        received = kernel.recv(1 << 16)
        while received:
            size, kind, _, _, _ = _HEADER.unpack_from(received)
            if kind == _DONE:
                return
            if kind == _ERROR:
                number = -struct.unpack_from("=i", received, _HEADER.size)[0]
                raise OSError(number, f"sock_diag: {os.strerror(number)}")
            yield _listener(received[_HEADER.size : size])
            received = received[(size + 3) & ~3 :]


def _listener(answer: bytes) -> Listener:
    family, _, port, address, device, user, inode = _ANSWER.unpack_from(answer)
    host = socket.inet_ntop(family, address if family == socket.AF_INET6 else address[:4])
    return Listener(host.removeprefix("::ffff:"), int.from_bytes(port), device, user, inode)


def trouble(port: int) -> str:
    """Return why a server must not use a port that it has just opened; "" if nobody else has, or could."""
    if peers := outside_peers(activity.read_tables(), {port}):
        return f"{peers[0]} connected while port {port} was opened, before it was bound to loopback"
    if any(item.is_open for item in listeners() if item.port == port):
        return f"port {port} is open to other machines: it is not bound to loopback"
    return ""


def outside_peers(tables: str, ports: Collection[int]) -> list[str]:
    """Return the addresses of other machines that are, were, or begin to be connected to ports of this machine.

    Args:
        tables: of `activity.read_tables`.
    """
    lines = (line.split() for line in tables.splitlines())
    ends = [
        (activity.address(fields[1]), activity.address(fields[2])[0])
        for fields in lines
        if len(fields) > 9 and fields[0] != "sl" and fields[3] != _LISTEN
    ]
    return [
        peer
        for (host, port), peer in ends
        if port in ports and peer != host and not ipaddress.ip_address(peer).is_loopback
    ]


def descriptors(pid: int) -> Iterable[tuple[int, int]]:
    """Yield the sockets of a process, each as a descriptor and an inode."""
    with contextlib.suppress(OSError):  # the process has ended
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    yield int(descriptor.name), int(target[len("socket:[") : -1])
