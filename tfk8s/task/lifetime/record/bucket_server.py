"""A server of HTTP that may hang, refuse or lie. Standard library only: this file runs in pods."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_TIMEOUT = 10.0  # seconds without a byte
LONGEST = 15.0  # of a request with its answer
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

    Attributes:
        host: for the header of this name.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BucketFailure(f"the endpoint is no URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BucketFailure("the endpoint is no URL with http or https")
        self.host = parts.netloc.rpartition("@")[2]
        self._connection = (
            http.client.HTTPSConnection(parts.hostname, port, timeout=_TIMEOUT, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname, port, timeout=_TIMEOUT)
        )

    def send(self, method: str, target: str, headers: Mapping[str, str], content: bytes, most: int) -> HttpAnswer:
        """Return the answer to a request that may come twice.

        Args:
            target: the path with the query, quoted.
            most: the greatest number of bytes of the answer.

        Raises:
            OSError, HTTPException: the server does not answer, or not in time.
            BucketFailure: the answer is too long.
        """
        for tries in range(_RETRIES + 1):
            is_used = self._connection.sock is not None
            try:
                return self._send(method, target, headers, content, most)
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

    def _send(self, method: str, target: str, headers: Mapping[str, str], content: bytes, most: int) -> HttpAnswer:
        if self._connection.sock is None:
            self._connect()
        with _cut_off(self._connection.sock, LONGEST):
            self._connection.request(method, target, content, dict(headers))
            response = self._connection.getresponse()
            body = response.read(most + 1)
        if len(body) > most:
            raise BucketFailure(f"the answer of {self.host} has more than {most:,} bytes")
        if response.length:
            raise BucketFailure(f"the answer of {self.host} is cut off")
        if not response.isclosed():
            self.close()
        return HttpAnswer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


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
