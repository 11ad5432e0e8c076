"""Routes that close addresses inside a cluster's network: route(7)'s reject routes, set through ioctl.

slirp4netns and pasta connect to whatever address a packet names, from this machine's own network. So the cluster's
network has an unreachable route for each address that has to stay out of reach.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterable

from tfk8s.core.network.reach import NEVER, Range

_SIOCADDRT, _SIOCDELRT = 0x890B, 0x890C
_RTF_UP, _RTF_HOST, _RTF_REJECT = 1, 4, 0x200
_RTENTRY = struct.Struct("@L16s16s16sHhLPhPLLH0L")
_LOCAL_ANYWAY = tuple(
    map(ipaddress.IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "255.255.255.255/32"))
)  # the kernel takes no route


class ClosedRoutes:
    """The unreachable routes of one network.

    Args:
        control: a socket of that network. This process may change the network, because its user owns it.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._closed: set[ipaddress.IPv4Network] = set()

    def close(self, own: Iterable[Range]) -> None:
        """Close the addresses of this machine, and those that are never reached; open what earlier calls had closed.

        IPv6 needs nothing: the network has no route for it.

        Args:
            own: the addresses of this machine.

        Raises:
            OSError: this process may not change the network.
        """
        wanted = {part for part in map(_ipv4, (*own, *NEVER)) if part is not None}
        for part in wanted - self._closed:
            self._change(_SIOCADDRT, part, errno.EEXIST)
        for part in self._closed - wanted:
            self._change(_SIOCDELRT, part, errno.ESRCH)
        self._closed = wanted

    def _change(self, request: int, part: ipaddress.IPv4Network, harmless: int) -> None:
        flags = _RTF_UP | _RTF_REJECT | (_RTF_HOST if part.prefixlen == part.max_prefixlen else 0)
        target, mask = _socket_address(part.network_address.packed), _socket_address(part.netmask.packed)
        entry = _RTENTRY.pack(0, target, _socket_address(bytes(4)), mask, flags, 0, 0, 0, 0, 0, 0, 0, 0)
        try:
            fcntl.ioctl(self._control, request, entry)
        except OSError as error:
            if error.errno != harmless:
                raise


def _ipv4(part: Range) -> ipaddress.IPv4Network | None:
    """Return a range that needs a route, else None."""
    if isinstance(part, ipaddress.IPv6Network) or any(part.subnet_of(local) for local in _LOCAL_ANYWAY):
        return None
    return part


def _socket_address(packed: bytes) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, packed)
