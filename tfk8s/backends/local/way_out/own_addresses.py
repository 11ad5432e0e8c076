"""The addresses of this machine, as the kernel routes them now (proc_net(5))."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from tfk8s.core.network.reach import Range

_IPV4, _IPV6 = Path("/proc/self/net/fib_trie"), Path("/proc/self/net/ipv6_route")
_LOCAL, _ANYCAST = 0x80000000, 0x00100000  # RTF_LOCAL, RTF_ANYCAST


def read() -> set[Range]:
    """Return the addresses of the network of this process; a route may make a range local.

    Raises:
        OSError: this system shows no routes.
    """
    text = _IPV6.read_text() if _IPV6.exists() else ""  # a kernel without IPv6
    return parse_ipv4(_IPV4.read_text()) | parse_ipv6(text)


def parse_ipv4(text: str) -> set[Range]:
    """Return the local ranges of `fib_trie`."""
    found: set[Range] = set()
    address = ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif len(words) > 2 and words[0].startswith("/") and words[2] == "LOCAL":
            found.add(ipaddress.ip_network(f"{address}{words[0]}", strict=False))
    return found


def parse_ipv6(text: str) -> set[Range]:
    """Return the local ranges of `ipv6_route`."""
    found: set[Range] = set()
    for line in text.splitlines():
        words = line.split()
        if int(words[8], 16) & (_LOCAL | _ANYCAST):
            found.add(ipaddress.ip_network((int(words[0], 16), int(words[1], 16)), strict=False))
    return found
