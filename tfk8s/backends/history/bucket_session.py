"""HTTP of commands to a bucket: requests knows the proxies and certificates of this machine.

The server may hang, refuse or lie. So of each answer at most as many bytes are kept as were asked for, in a time that
is long enough for them.
"""

from __future__ import annotations

import contextlib
import http
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import requests
import urllib3.exceptions

from tfk8s import polling
from tfk8s.task.buckets.bucket_server import BucketFailure, HttpAnswer

TIMEOUT = 20.0  # seconds without a byte
SLOWEST = 16 << 10  # bytes a second, with which an answer still comes in time
_RETRY_TIMEOUT = 10.0
_BUSY = (429, 500, 502, 503, 504)
_BLOCK = 64 << 10
_MOST_OF_ERROR = 64 << 10  # bytes
_CERTIFICATES_HELP = "REQUESTS_CA_BUNDLE=FILE names certificates of your own"
_PROXY_HELP = "HTTPS_PROXY, HTTP_PROXY and NO_PROXY name the proxy"


class BucketUnreachable(BucketFailure):
    """A server can't be reached, or ends its answer too early.

    Attributes:
        help: the cure; "" if the address may be wrong.
    """

    def __init__(self, words: str, help_: str) -> None:
        super().__init__(words)
        self.help = help_


class BucketSession:
    """A server that is asked as a `BucketServer` is.

    Args:
        url: http:// or https://, a host, and perhaps a port and a path.
        ca_file: the certificates that count; "" is what requests takes.
        note: takes the number of bytes of each block that arrives.

    Attributes:
        host: for the header of this name.

    Raises:
        BucketFailure: the URL is none.
    """

    def __init__(self, url: str, ca_file: str, note: Callable[[int], None]) -> None:
        with contextlib.suppress(ValueError):
            parts = urllib.parse.urlsplit(url)
            self.host = parts.netloc.rpartition("@")[2]
            if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
                self._base, self._ca_file = f"{parts.scheme}://{self.host}", ca_file
                self._note, self._session = note, requests.Session()
                return
        raise BucketFailure("the endpoint is no URL with http or https, a host and perhaps a port")

    def send(self, method: str, target: str, headers: Mapping[str, str], content: bytes, most: int) -> HttpAnswer:
        """Return the answer; arguments as of `BucketServer.send`. A busy server is asked again.

        Raises:
            BucketUnreachable: there is no whole answer.
            BucketFailure: the answer comes too slowly.
        """
        request = requests.PreparedRequest()  # without what requests adds: the signature holds for the rest
        request.method, request.url, request.body = method, self._base + target, content or None
        request.headers = requests.structures.CaseInsensitiveDict(headers)
        retries = polling.Retries(_RETRY_TIMEOUT)
        while True:
            answer = self._send_once(request, most)
            if answer.status not in _BUSY or not retries.wait():
                return answer

    def close(self) -> None:
        """Close the connections; the next request makes another."""
        self._session.close()

    def _send_once(self, request: requests.PreparedRequest, most: int) -> HttpAnswer:
        end = time.monotonic() + 2 * TIMEOUT + most / SLOWEST
        settings = self._session.merge_environment_settings(self._base, {}, True, self._ca_file or None, None)
        with self._one_error(settings["proxies"]):
            # The session would read the whole body of a redirection, and keep cookies.
            answer = self._session.get_adapter(self._base).send(request, timeout=TIMEOUT, **settings)
            try:
                is_ok = answer.status_code == http.HTTPStatus.OK
                body = self._read(answer.raw, (most if is_ok else _MOST_OF_ERROR) + 1, end)
            finally:
                answer.close()
        if not is_ok:  # 103 would leave the next answer on the connection
            self.close()
        return HttpAnswer(answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, body)

    def _read(self, source: urllib3.HTTPResponse, most: int, end: float) -> bytes:
        body = bytearray()
        while len(body) < most and (block := source.read1(min(_BLOCK, most - len(body)), decode_content=False)):
            body += block
            self._note(len(block))
            if time.monotonic() > end:
                raise BucketFailure(f"{self.host} is too slow")
        return bytes(body)

    @contextlib.contextmanager
    def _one_error(self, proxies: Mapping[str, Any]) -> Iterator[None]:
        """Turn what requests raises, whose texts show URLs with passwords, into one error, in a `with`."""
        try:
            yield
        except BucketFailure:
            raise
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            proxy = requests.utils.select_proxy(self._base, proxies)
            through = f" through the proxy {_host(proxy)}" if proxy else ""
            is_missing = type(error) is OSError  # requests finds no file of certificates
            is_certificate = is_missing or isinstance(error, requests.exceptions.SSLError)
            help_ = _CERTIFICATES_HELP if is_certificate else _PROXY_HELP if proxy else ""
            raise BucketUnreachable(f"{self.host}{through}: {_words(error)}", help_) from error


def _words(error: BaseException) -> str:
    """Return the words of the system's error, or of the first one, in which no URL is."""
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return f"no answer for {TIMEOUT:g} s"
    if isinstance(error, (requests.exceptions.InvalidURL, urllib3.exceptions.LocationValueError)):
        return "it has no valid URL"  # that of the server was checked
    while inner := _cause(error):
        error = inner
    words = getattr(error, "verify_message", "") or getattr(error, "strerror", None) or str(error)
    return str(words).partition("url:")[0] or type(error).__name__


def _cause(error: BaseException) -> BaseException | None:
    causes = (getattr(error, "reason", None), *error.args, error.__cause__)
    return next((cause for cause in causes if isinstance(cause, Exception)), None)


def _host(url: str) -> str:
    """Return the host and port in the URL of a proxy, if nothing there can be a part of a password."""
    with contextlib.suppress(ValueError):
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.hostname and parts.port != 0 and "@" not in parts.path:
            return parts.netloc.rpartition("@")[2]
    return "of the variables"
