"""Free ports of this machine for tasks, whose own ports other programs may use."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from tfk8s.core.addresses import MAX_PORT

K = TypeVar("K")
_FIRST = 10_000
_TRIES = 1000
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def choose(wanted: Mapping[K, int], taken: Collection[int]) -> dict[K, int]:
    """Return a free port for each key: the wanted one if it is free, else a random one.

    Args:
        wanted: the wanted port of each key.
        taken: ports that other clusters of this user have, even if nothing listens there now.

    Raises:
        OSError: there are no free ports.
    """
    used = {*taken, *wanted.values()}  # no task gets the port that another one is known by
    chosen: dict[K, int] = {}
    for key, port in wanted.items():
        free = port if port not in taken and is_free(port) else _any_free(used)
        used.add(free)
        chosen[key] = free
    return chosen


def _any_free(used: Collection[int]) -> int:
    """Return a free port below those from which this machine's programs connect to others."""
    last = min(_first_outgoing(), MAX_PORT)
    first = min(_FIRST, last - _TRIES)
    for port in random.sample(range(first, last), _TRIES):
        if port not in used and is_free(port):
            return port
    raise OSError(f"no free port from {first} to {last}")


def _first_outgoing() -> int:
    try:
        return int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


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
