"""The heads of HTTP/1 requests and responses that pass the proxy. Their senders are not trusted."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass

_LINE = re.compile(rb"([A-Z]{1,20}) ([!-~]{1,32768}) HTTP/1\.[01]")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00\r\n]*)")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})( [^\r\n]*)?")
_AUTHORITY = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z._\-]{1,253})):(?P<port>[0-9]{1,5})")
# Headers for the next server alone.
_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"upgrade"}
_FRAMING = {b"content-length", b"transfer-encoding"}  # nobody may hide the length of a body
_INFORMATIONAL = range(100, 200)

Headers = list[tuple[bytes, bytes]]


class BadHead(ValueError):
    """A head is not HTTP/1, or asks for what the proxy does not do."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request to the proxy.

    Attributes:
        method: "CONNECT" for a tunnel.
        host: the name or address of the server.
        port: its port.
        path: the path and the query; "" for a tunnel.
        headers: the headers for the server.
    """

    method: str
    host: str
    port: int
    path: str
    headers: Headers

    @property
    def is_tunnel(self) -> bool:
        """True if the client wants a plain stream to the server."""
        return self.method == "CONNECT"

    @property
    def authority(self) -> str:
        """The server as `host:port`."""
        return authority(self.host, self.port)

    @property
    def body_bytes(self) -> int | None:
        """The size of the body that follows the head; None if only the body itself shows its end."""
        framing = [(key.lower(), value) for key, value in self.headers if key.lower() in _FRAMING]
        if not framing:
            return 0
        ((key, value), *others) = framing
        return int(value) if key == b"content-length" and value.isdigit() and not others else None

    def head(self, target: str, more: Headers) -> bytes:
        """Return the request for the next server, which closes the connection after its response.

        Args:
            target: the path, or the whole URL for another proxy.
            more: more headers.
        """
        default = f"[{self.host}]" if ":" in self.host else self.host
        host = default if self.port == 80 else self.authority
        headers = [(b"Host", host.encode()), *self.headers, *more, (b"Connection", b"close")]
        return _join(f"{self.method} {target} HTTP/1.1".encode(), headers)

    def connect_head(self, more: Headers) -> bytes:
        """Return the request of a tunnel for another proxy, with more headers."""
        name = self.authority.encode()
        return _join(b"CONNECT " + name + b" HTTP/1.1", [(b"Host", name), *more])


def authority(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_request(head: bytes) -> ProxyRequest:
    """Return the request of a head, which ends with an empty line.

    Raises:
        BadHead: the head is not a request for a proxy.
    """
    first, headers = _split(head)
    match = _LINE.fullmatch(first)
    if match is None:
        raise BadHead("this is no request of HTTP/1")
    method, target = match[1].decode(), match[2].decode()
    if method == "CONNECT":
        return ProxyRequest(method, *_parse_authority(target), "", [])
    try:
        url = urllib.parse.urlsplit(target)
    except ValueError as error:
        raise BadHead("this is no URL") from error
    if url.scheme != "http":
        raise BadHead("the proxy takes CONNECT and URLs of http:// alone")
    place = url.netloc.rpartition("@")[2]
    host, port = _parse_authority(place if re.search(r":[0-9]+$", place) else f"{place.removesuffix(':')}:80")
    path = urllib.parse.urlunsplit(("", "", url.path or "/", url.query, ""))
    return ProxyRequest(method, host, port, path, _for_next(headers))


def is_informational(head: bytes) -> bool:
    """Return whether another head follows this head of a response, as after "100 Continue".

    Raises:
        BadHead: the head is not a response.
    """
    return status(head) in _INFORMATIONAL


def status(head: bytes) -> int:
    """Return the status of a response.

    Raises:
        BadHead: the head is not a response.
    """
    match = _STATUS.fullmatch(_split(head)[0])
    if match is None:
        raise BadHead("the server's answer is no response of HTTP/1")
    return int(match[1])


def closing_response(head: bytes) -> bytes:
    """Return the head of a response for a client, whose connection closes after it."""
    first, headers = _split(head)
    return _join(first, [*_for_next(headers), (b"Connection", b"close")])


def error_response(code: int, text: str) -> bytes:
    """Return a response with an error. The text is in its first line, since clients show that line for CONNECT."""
    line = re.sub(r"[^ -~]", "?", text)[:500]
    body = f"{line}\n".encode()
    headers = [
        (b"Content-Type", b"text/plain"), (b"Content-Length", str(len(body)).encode()), (b"Connection", b"close")
    ]  # fmt: skip
    return _join(f"HTTP/1.1 {code} {line}".encode(), headers) + body


def _parse_authority(text: str) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise BadHead("the server must be host:port")
    return match["ipv6"] or match["name"], int(match["port"])


def _split(head: bytes) -> tuple[bytes, Headers]:
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    matches = [_HEADER.fullmatch(line) for line in lines]
    if not all(matches):
        raise BadHead("a header is not HTTP/1")
    return first, [(match[1], match[2]) for match in matches if match]


def _for_next(headers: Headers) -> Headers:
    """Return the headers that are not for this proxy alone; `Host` comes from the URL."""
    lists = [value for key, value in headers if key.lower() == b"connection"]
    named = {name.strip().lower() for names in lists for name in names.split(b",")} - _FRAMING
    return [(key, value) for key, value in headers if key.lower() not in _HOP | named | {b"host"}]


def _join(first: bytes, headers: Headers) -> bytes:
    return b"\r\n".join([first, *(key + b": " + value for key, value in headers), b"", b""])
