"""The users of this machine's TCP sockets, as Linux tells them. Standard library only: this file also runs in pods."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from tfk8s.errors import InvalidInput

_LOOPBACK = "127.0.0.1"
_LISTENS = "0A"  # the state TCP_LISTEN


def peer_users(tables: str, port: int) -> dict[int, int]:
    """Return the users of the sockets that are connected from loopback ports to ours, by these ports.

    Args:
        tables: the text of /proc/net/tcp and tcp6 (proc_net_tcp(5)); a client may use a socket for IPv6.
        port: ours, on 127.0.0.1.
    """
    users, ours = {}, f"{_address()}:{port:04X}"
    for line in tables.splitlines():
        fields = line.split()
        if len(fields) < 10:
            continue
        local, remote, user, inode = fields[1], fields[2], fields[7], fields[9]
        # A socket that its process has closed has no inode, and root as its user.
        if inode != "0" and remote[-13:] == ours and _is_loopback(local) and _is_loopback(remote):
            users[int(local[-4:], 16)] = int(user)
    return users


def own_clients(clients: Iterable[int], port: int) -> set[int]:
    """Return those loopback ports from which this user is connected to ours; all of them where nobody tells."""
    if sys.platform != "linux":
        return set(clients)
    users = peer_users(tables(), port)  # without a port whose socket is gone
    return {client for client in clients if users.get(client) == os.geteuid()}


def tables() -> str:
    """Return the kernel's tables of this machine's TCP sockets; "" if the system is not Linux."""
    texts = []
    for name in ("tcp", "tcp6") if sys.platform == "linux" else ():
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            texts.append(Path("/proc/net", name).read_text())
    return "".join(texts)


def _address() -> str:
    """Return 127.0.0.1 as /proc writes it: a hexadecimal number in the machine's byte order."""
    return f"{int.from_bytes(socket.inet_aton(_LOOPBACK), sys.byteorder):08X}"


def _is_loopback(address: str) -> bool:
    """Return whether an address of the tables is 127.0.0.1, or ::ffff:127.0.0.1."""
    mapped = f"{int.from_bytes(bytes([0, 0, 255, 255]), sys.byteorder):08X}"
    return address.partition(":")[0] in (_address(), "0" * 16 + mapped + _address())


def require_own_listener(port: int) -> None:
    """Check that no other user's process listens on a loopback port; only Linux tells.

    Raises:
        InvalidInput: the process of another user listens there.
    """
    if sys.platform != "linux":
        return
    for line in tables().splitlines():
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTENS or not fields[1].endswith(f":{port:04X}"):
            continue
        is_any = not int(fields[1].partition(":")[0], 16)
        if (is_any or _is_loopback(fields[1])) and int(fields[7]) != os.geteuid():
            raise InvalidInput(
                f"port {port} was taken by another user's process", help="choose another port, or leave the port out"
            )
