"""The addresses that the processes of a local cluster may connect to.

The machine's own addresses, loopback and link-local ones are never among them: local services trust whoever connects
from there, and a cloud's metadata server gives its credentials. The job file's `network.allow_to` restricts the rest.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tfk8s.core.job_file.mappings import Destination

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Range = ipaddress.IPv4Network | ipaddress.IPv6Network

FIELD = "network.allow_to of the job file"
# Ranges that no script reaches. Linux takes 0.0.0.0 for loopback.
NEVER: tuple[Range, ...] = tuple(
    map(
        ipaddress.ip_network,
        ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32",
         "::/128", "::1/128", "fe80::/10", "ff00::/8"),
    )
)  # fmt: skip
# IPv6 addresses that hold an IPv4 address in their last bits: mapped, compatible, translated (NAT64).
_HOLDERS = tuple(map(ipaddress.IPv6Network, ("::ffff:0:0/96", "::/96", "64:ff9b::/96")))


@dataclass(frozen=True, slots=True)
class Allowed:
    """One range that the job file allows.

    Attributes:
        range: the addresses.
        excepted: the parts of the range that are not allowed.
        ports: only these ports; empty means all.
    """

    range: Range
    excepted: tuple[Range, ...] = ()
    ports: tuple[int, ...] = ()

    def has(self, address: Address, port: int) -> bool:
        """Return whether a connection to this address and port is allowed."""
        is_excepted = any(address in part for part in self.excepted)
        return address in self.range and not is_excepted and (not self.ports or port in self.ports)


def allowed(peers: Iterable[Destination] | None) -> list[Allowed] | None:
    """Return the ranges of `network.allow_to`; None if the job file has none. Pods mean nothing on this machine."""
    if peers is None:
        return None
    return [
        Allowed(ipaddress.ip_network(peer.cidr), tuple(map(ipaddress.ip_network, peer.except_)), peer.ports)
        for peer in peers
        if peer.cidr is not None
    ]


def refusal(address: Address, port: int, own: Collection[Range], ranges: Sequence[Allowed] | None) -> str:
    """Return why a connection is refused, as the end of a sentence; "" if the connection is allowed.

    Args:
        address: the address to connect to, after its name was resolved.
        port: the port to connect to.
        own: the addresses of this machine.
        ranges: what the job file allows; None is everything.
    """
    plain = _plain(address)
    if any(plain in part for part in own):
        return f"{plain} is an address of this machine"
    if any(plain in part for part in NEVER):
        return f"{plain} is a loopback, link-local or multicast address"
    if ranges is not None and not any(part.has(plain, port) for part in ranges):
        return f"{FIELD} does not have {plain} port {port}"
    return ""


def _plain(address: Address) -> Address:
    """Return the address without a scope, and the IPv4 address that an IPv6 address holds."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    number = int(address)
    if number > 1 and any(number in range(int(part[0]), int(part[-1]) + 1) for part in _HOLDERS):
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return ipaddress.IPv6Address(number)
