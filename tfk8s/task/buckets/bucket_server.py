"""A server of HTTP that may hang, refuse or lie, and its answers. Standard library only: this file runs in pods."""

from __future__ import annotations

import contextlib
import copy
import http.client
import io
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import NamedTuple
from xml.etree import ElementTree

_TIMEOUT = 10.0  # seconds without a byte
_MOST_OF_ERROR = 64 << 10  # bytes
_BLOCK = 64 << 10  # bytes of an answer that are read at once
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
        longest: seconds of a request with its answer, and with the connection that it may need.

    Attributes:
        host: for the header of this name.
    """

    def __init__(self, url: str, *, longest: float = 15.0) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
        except ValueError:  # its words may have a password
            raise BucketFailure("the endpoint has no valid host or port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BucketFailure("the endpoint is no URL with http or https")
        self.host, self._longest = parts.netloc.rpartition("@")[2], longest
        self._connection = (
            http.client.HTTPSConnection(parts.hostname, port, timeout=_TIMEOUT, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname, port, timeout=_TIMEOUT)
        )

    def send(self, method: str, target: str, headers: Mapping[str, str], content: bytes, most: int) -> HttpAnswer:
        """Return the answer to a request that may come twice.

        Args:
            target: the path with the query, quoted.
            most: the greatest number of bytes of a 200; one more shows that it is longer. Others have their own limit.

        Raises:
            OSError, HTTPException: the server does not answer, or not in time.
            BucketFailure: the answer is cut off, or none.
        """
        end = time.monotonic() + self._longest
        for tries in range(_RETRIES + 1):
            is_used = self._connection.sock is not None
            try:
                return self._send(method, target, headers, content, most, end)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                is_over = tries == _RETRIES or time.monotonic() >= end
                if isinstance(error, BucketFailure) or not is_used or is_over:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        self._connection.close()

    def _connect(self, end: float) -> None:
        """Connect, on a thread: names may hang, and the steps of a handshake have a timeout each."""
        connection, made = copy.copy(self._connection), Future[None]()

        def connect() -> None:
            try:
                connection.connect()
                made.set_result(None)
            except Exception as error:
                made.set_exception(error)
            if time.monotonic() >= end:
                connection.close()

        threading.Thread(target=connect, name="tfk8s-connect", daemon=True).start()
        try:
            made.result(max(0.0, end - time.monotonic()))
        except TimeoutError:
            if made.done():
                raise
            raise self._late() from None
        except ValueError as error:  # of a certificate, or of a name that no host can have
            raise BucketFailure(f"{self.host}: {getattr(error, 'strerror', None) or error}") from None
        self._connection = connection

    def _late(self) -> TimeoutError:
        return TimeoutError(f"no whole answer after {self._longest:g} s")

    def _send(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes, most: int, end: float
    ) -> HttpAnswer:
        if self._connection.sock is None:
            self._connect(end)
        with _cut_off(self._connection.sock, end, self._late()):
            self._connection.request(method, target, content, dict(headers))
            with self._connection.getresponse() as response:
                limit = most if response.status == http.HTTPStatus.OK else _MOST_OF_ERROR
                body = _read(response, limit + 1)
                is_whole = response.isclosed()
        if response.status < http.HTTPStatus.OK:  # another answer follows, which is not that of the next request
            raise BucketFailure(f"{self.host} gives no answer: {response.status}")
        if response.length and len(body) <= limit:
            raise BucketFailure(f"the answer of {self.host} is cut off")
        if not is_whole:
            self.close()
        return HttpAnswer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def _read(response: http.client.HTTPResponse, most: int) -> bytes:
    """Return at most so many bytes of an answer. `read` itself would keep an object for each chunk of one byte."""
    body, block = io.BytesIO(), memoryview(bytearray(min(most, _BLOCK)))
    while (left := most - body.tell()) and (count := response.readinto(block[:left])):
        body.write(block[:count])
    return body.getvalue()


@contextlib.contextmanager
def _cut_off(connection: socket.socket, end: float, late: TimeoutError) -> Iterator[None]:
    """Cut a connection off at a time, in a `with`: a timeout of a socket begins anew with each byte.

    Args:
        end: as `time.monotonic` has it.
        late: is raised if the time is over.
    """
    over = threading.Event()

    def cut() -> None:
        over.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # TLS' own would let plain bytes through

    timer = threading.Timer(max(0.0, end - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if over.is_set():
            raise late


def header_value(value: str, name: str) -> str:
    """Return a value for a header of http.client, whose own error would show the value.

    Raises:
        BucketFailure: it has characters that would end the header.
    """
    value = value.strip()
    if not value.isascii() or not value.isprintable() or " " in value:
        raise BucketFailure(f"{name} has characters that no key has")
    return value


def parse_xml(body: bytes) -> ElementTree.Element:
    """Return the root of a document without declarations, whose entities could be endless.

    Raises:
        BucketFailure: it is none.
    """
    try:
        text = body.decode()
        if "<!" in text or "\0" in text:  # UTF-16 would hide declarations
            raise BucketFailure("the answer of the bucket has declarations")
        return ElementTree.fromstring(text)  # noqa: S314 - see above
    except (UnicodeDecodeError, ElementTree.ParseError):
        raise BucketFailure("the answer of the bucket is no XML") from None


def refusal(status: int, body: bytes) -> str:
    """Return the words of an error: its status, and its code if the answer has one."""
    try:
        code = parse_xml(body).findtext(".//{*}Code") or ""  # of any namespace, or none
    except BucketFailure:
        code = ""
    return f"{status} {code}" if code.isascii() and code.isalnum() and len(code) <= 64 else str(status)
