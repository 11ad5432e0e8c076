"""Which proxy leads to an API server: the kubeconfig's, or the environment's, as Go reads it.

Go's rules (golang.org/x/net/http/httpproxy) are those of kubectl. Python's own differ: there are no networks in
NO_PROXY, and proxies even for loopback addresses.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from tfk8s.backends.kubernetes.access import Server
from tfk8s.errors import InvalidInput

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy.

    Attributes:
        scheme: "http" or "https", which is how it is spoken to.
        host, port: where it is.
        login: name and password for it.
        about: who names it, for messages.
    """

    scheme: str
    host: str
    port: int
    login: tuple[str, str] | None = field(repr=False)
    about: str

    @property
    def headers(self) -> dict[str, str]:
        """What it is told of who comes."""
        if self.login is None:
            return {}
        return {"Proxy-Authorization": "Basic " + base64.b64encode(":".join(self.login).encode()).decode()}

    @property
    def url(self) -> str:
        """Its address, without the login."""
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def find(server: Server, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that leads to an API server; None where there is none between.

    Raises:
        InvalidInput: it is no http or https proxy.
    """
    if server.proxy:
        return _parse(server.proxy, f'"proxy-url" of {server.about}')
    target = urlsplit(server.url)
    name = f"{target.scheme}_proxy"
    value, about = next(((environment[key], key) for key in (name.upper(), name) if environment.get(key)), ("", ""))
    exceptions = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if not value or not _is_for(target, exceptions):
        return None
    return _parse(value, about)


def _parse(value: str, about: str) -> Proxy:
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        raise InvalidInput(f"{about} names no proxy", help="it has to be as http://HOST:PORT")
    if parts.scheme not in PORTS:
        raise InvalidInput(
            f"{about} names a proxy that tfk8s can't use: it speaks {parts.scheme}", help="http and https are known"
        )
    login = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return Proxy(parts.scheme, host, port or PORTS[parts.scheme], login, about)


def _is_for(target: SplitResult, exceptions: str) -> bool:
    """Return whether a proxy is used for an address."""
    host, port = target.hostname or "", target.port or PORTS[target.scheme]
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    return not any(_is_meant(one.strip().lower(), host, port, address) for one in exceptions.split(","))


def _is_meant(exception: str, host: str, port: int, address: ipaddress._BaseAddress | None) -> bool:
    """Return whether an entry of NO_PROXY means a host: as a name, a domain, an address or a network, with a port."""
    if exception == "*":
        return True
    if "/" in exception:
        try:
            return address is not None and address in ipaddress.ip_network(exception, strict=False)
        except ValueError:
            return False
    name, only = _split_port(exception)
    if not name or (only and only != str(port)):
        return False
    if (wanted := _address(name)) is not None:
        return wanted == address
    domain = name[1:] if name.startswith("*.") else name
    return host.endswith(domain) if domain.startswith(".") else host == domain or host.endswith(f".{domain}")


def _split_port(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name, port.removeprefix(":")
    name, colon, port = entry.partition(":")
    return (name, port) if colon and ":" not in port else (entry, "")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
