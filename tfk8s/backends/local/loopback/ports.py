"""Free ports for tasks in a network where other programs may use the ports that the job file names."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from tfk8s.backends.local.loopback import sockets
from tfk8s.core.addresses import MAX_PORT
from tfk8s.task import activity

K = TypeVar("K")
_FIRST = 10_000
_TRIES = 1000
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """The ports of a cluster in a network that it shares with other clusters, which this process holds until its end.

    A port is held by an abstract Unix socket with its number (unix(7)), which has one owner in a network, whatever
    the user and the folder of the cluster. So two clusters that start at the same time get different ports.
    """

    def __init__(self) -> None:
        self._held: dict[int, socket.socket] = {}

    def choose(self, wanted: Mapping[K, int], kept: Collection[int] = ()) -> dict[K, int]:
        """Return a free port for each key: the wanted one if it is free, else a random one.

        Args:
            wanted: the wanted port of each key.
            kept: the ports of this cluster that stay in use; it gives up the others.

        Raises:
            OSError: there are no free ports.
        """
        self._release(kept)
        # No key gets the port that another one is known by.
        return {key: port if self._hold(port) else self._any({*wanted.values()}) for key, port in wanted.items()}

    def close(self) -> None:
        """Give up all ports."""
        self._release(())

    def _release(self, kept: Collection[int]) -> None:
        for port in self._held.keys() - {*kept}:
            self._held.pop(port).close()

    def _any(self, known: Collection[int]) -> int:
        """Return a free port below those from which this machine's programs connect to others."""
        last = _first_outgoing()
        first = _FIRST
        if last < first + _TRIES:  # this machine connects from almost all ports
            last = MAX_PORT + 1
        for port in random.sample(range(first, last), _TRIES):
            if port not in known and self._hold(port):
                return port
        raise OSError(f"no free port from {first} to {last - 1}")

    def _hold(self, port: int) -> bool:
        owner = socket.socket(socket.AF_UNIX)
        try:
            owner.bind(f"\0tfk8s-port-{port}")
        except OSError:
            owner.close()
            return False
        if not is_free(port) or sockets.outside_peers(activity.read_tables(), {port}):  # of an earlier server
            owner.close()
            return False
        self._held[port] = owner
        return True


OWN = Ports()  # of this process, which supervises one cluster


def _first_outgoing() -> int:
    try:
        return int(OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def has_ipv6() -> bool:
    """Return whether the network of this process has the loopback address of IPv6: a machine may have IPv6 off."""
    try:
        with socket.socket(socket.AF_INET6) as attempt:
            attempt.bind(("::1", 0))
    except OSError:
        return False
    return True


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port of this machine."""
    # Without SO_REUSEPORT, so that a server of gRPC, which sets it, counts: two such servers would share the port.
    try:
        with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(("", port))
    except OSError:
        return False
    return True
