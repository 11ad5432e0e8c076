"""The user's own proxy, which stands behind the supervisor's: from the variables of `tfk8s up` and the job file."""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

_SCHEMES = {"http": 80, "https": 443}
_NAMES = ("https_proxy", "http_proxy", "no_proxy")


@dataclass(frozen=True, slots=True)
class Upstream:
    """One proxy of HTTP/1.

    Attributes:
        host: its name or address.
        port: its port.
        is_tls: whether the connection to it is encrypted.
        credentials: the value of `Proxy-Authorization`, or "".
    """

    host: str
    port: int
    is_tls: bool = False
    credentials: str = ""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that a request to the proxy needs."""
        return [(b"Proxy-Authorization", self.credentials.encode())] if self.credentials else []


class Upstreams:
    """The proxies that a set of variables names.

    Args:
        variables: the environment.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        found = {name: variables.get(name) or variables.get(name.upper()) or "" for name in _NAMES}
        self._bypass = {"no": found["no_proxy"]}
        self._proxies = {"https": _parse(found["https_proxy"]), "http": _parse(found["http_proxy"])}

    @property
    def hosts(self) -> set[str]:
        """The hosts of the proxies."""
        return {proxy.host for proxy in self._proxies.values() if proxy is not None}

    def of(self, host: str, *, is_tunnel: bool) -> Upstream | None:
        """Return the proxy for a server; None if the variables have none, or except this server."""
        proxy = self._proxies["https" if is_tunnel else "http"]
        if proxy is None:
            return None
        import urllib.request  # takes a tenth of a supervisor's start, and few users have a proxy

        is_excepted = urllib.request.proxy_bypass_environment(host, self._bypass)  # type: ignore[attr-defined]
        return None if is_excepted else proxy


def _parse(text: str) -> Upstream | None:
    """Return the proxy of a URL; None for what is no proxy of HTTP, such as socks5://."""
    try:
        url = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
        if url.scheme not in _SCHEMES or not url.hostname:
            return None
        port = url.port or _SCHEMES[url.scheme]
    except ValueError:
        return None
    credentials = ""
    if url.username is not None:
        pair = f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
        credentials = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Upstream(url.hostname, port, url.scheme == "https", credentials)
