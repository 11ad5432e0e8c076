"""The resolver of a cluster's network: /etc/resolv.conf may name one that only this machine's own network reaches."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from pathlib import Path

from tfk8s.backends.local import mounts
from tfk8s.backends.local.way_out import own_addresses
from tfk8s.backends.local.way_out.helper_programs import RESOLVER
from tfk8s.core.network.reach import Range, refusal

_FILE = Path("/etc/resolv.conf")  # resolv.conf(5)
_PORT = 53


def prepare(folder: Path) -> None:
    """Make the way out's resolver that of this process and its later children, if the machine's is out of reach.

    Raises:
        OSError: this process may not mount.
    """
    text = _FILE.read_text()
    if (changed := with_reachable(text, own_addresses.read())) != text:
        own = folder / _FILE.name
        own.write_text(changed)
        mounts.bind(own, _FILE)


def with_reachable(text: str, own: Collection[Range]) -> str:
    """Return the text of resolv.conf with a resolver that the way out reaches; the same text if all are reachable."""
    lines = text.splitlines(keepends=True)
    servers = [words[1] for line in lines if (words := line.split())[:1] == ["nameserver"] and len(words) > 1]
    if servers and not any(_is_out_of_reach(server, own) for server in servers):
        return text
    others = [line for line in lines if line.split()[:1] != ["nameserver"]]
    return "".join([f"nameserver {RESOLVER}\n", *others])


def _is_out_of_reach(server: str, own: Collection[Range]) -> bool:
    try:
        address = ipaddress.ip_address(server)
    except ValueError:
        return True
    return isinstance(address, ipaddress.IPv6Address) or bool(refusal(address, _PORT, own, None))
