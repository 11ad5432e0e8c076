"""A server of HTTP that may hang, refuse or lie. Standard library only: this file runs in pods."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_TIMEOUT = 10.0  # seconds without a byte
_MOST_OF_ERROR = 64 << 10  # bytes
_RETRIES = 1  # on a connection that the server may have closed meanwhile


class BucketFailure(OSError):
    """A bucket or a source of its keys refuses, or gives an answer that is none."""


class HttpAnswer(NamedTuple):
    """An answer.

    Attributes:
        status: the HTTP status.
        headers: by their names in lower case.
        body: the content.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class BucketServer:
    """A server that is asked over one connection, as long as it lasts.

    Args:
        url: http:// or https://, a host, and perhaps a port.
        longest: seconds of a request with its answer.
        ca_file: the certificates that count; "" is those of the system.
        proxy: the URL of a proxy for https://; "" without one.

    Attributes:
        host: for the header of this name.
    """

    def __init__(self, url: str, *, longest: float = 15.0, ca_file: str = "", proxy: str = "") -> None:
        try:
            parts, via = urllib.parse.urlsplit(url), urllib.parse.urlsplit(proxy or url)
            port, via_port = parts.port, via.port
        except ValueError as error:
            raise BucketFailure(f"the endpoint is no URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BucketFailure("the endpoint is no URL with http or https")
        if not via.hostname:
            raise BucketFailure("the proxy is no URL with a host")
        self.host, self._longest = parts.netloc.rpartition("@")[2], longest
        if parts.scheme == "http":
            self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=_TIMEOUT)
            return
        try:
            context = ssl.create_default_context(cafile=ca_file or None)
        except OSError as error:
            raise BucketFailure(f"the certificates in {ca_file} can't be read: {error.strerror}") from None
        self._connection = http.client.HTTPSConnection(via.hostname, via_port, timeout=_TIMEOUT, context=context)
        if proxy:
            self._connection.set_tunnel(parts.hostname, port, _proxy_headers(via))

    def send(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes, most: int, *, is_cut: bool = False
    ) -> HttpAnswer:
        """Return the answer to a request that may come twice.

        Args:
            target: the path with the query, quoted.
            most: the greatest number of bytes of a 200; other answers have a limit of their own.
            is_cut: take the first bytes of a longer answer.

        Raises:
            OSError, HTTPException: the server does not answer, or not in time.
            BucketFailure: the answer is too long.
        """
        for tries in range(_RETRIES + 1):
            is_used = self._connection.sock is not None
            try:
                return self._send(method, target, headers, content, most, is_cut)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if isinstance(error, BucketFailure) or not is_used or tries == _RETRIES:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        self._connection.close()

    def _connect(self) -> None:
        try:
            self._connection.connect()
        except ValueError as error:  # of a certificate, or of a name that no host can have
            raise BucketFailure(f"{self.host}: {getattr(error, 'strerror', None) or error}") from None

    def _send(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes, most: int, is_cut: bool
    ) -> HttpAnswer:
        if self._connection.sock is None:
            self._connect()
        with _cut_off(self._connection.sock, self._longest):
            self._connection.request(method, target, content, dict(headers))
            with self._connection.getresponse() as response:
                limit = most if response.status == http.HTTPStatus.OK else _MOST_OF_ERROR
                body = response.read(limit if is_cut else limit + 1)
                is_whole = response.isclosed()
        if len(body) > limit:
            raise BucketFailure(f"the answer of {self.host} has more than {limit:,} bytes")
        if response.length and not (is_cut and len(body) == limit):
            raise BucketFailure(f"the answer of {self.host} is cut off")
        if not is_whole:
            self.close()
        return HttpAnswer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def _proxy_headers(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    user = urllib.parse.unquote(f"{proxy.username}:{proxy.password or ''}")
    return {"proxy-authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


@contextlib.contextmanager
def _cut_off(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Cut a connection off after some seconds, in a `with`: a timeout of a socket begins anew with each byte.

    Raises:
        TimeoutError: the time is over.
    """
    over = threading.Event()

    def cut() -> None:
        over.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # TLS' own would let plain bytes through

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if over.is_set():
            raise TimeoutError(f"no whole answer after {seconds:g} s")
