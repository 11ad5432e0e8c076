"""Requests and WebSockets to an API server, each with the credentials that hold then."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import urllib3
import websocket

from tfk8s.backends.kubernetes.access import Access, proxy, tls
from tfk8s.backends.kubernetes.access.credentials import Credential, Credentials, Fixed, TokenFile, fixed
from tfk8s.backends.kubernetes.access.plugin import FromPlugin
from tfk8s.errors import InvalidInput

_MOST_KEPT = 32  # connections that are kept open
_UNAUTHORIZED = 401

Answer = urllib3.BaseHTTPResponse


class Connections:
    """Ways to one API server. What it answers with 401 was not done, and is asked once more with new credentials.

    Args:
        access: where it is, and who asks.
        tell: hears what is waited for, where that takes long.

    Raises:
        InvalidInput: the kubeconfig, or the environment's proxy, can't be used.
    """

    def __init__(self, access: Access, tell: Callable[[str], None]) -> None:
        self._access = access
        self._credentials = _credentials(access, tell)
        self._proxy = proxy.find(access.server, os.environ)
        self._lock = threading.Lock()
        self._wires: _Wires | None = None

    def request(
        self, method: str, path: str, *, headers: Mapping[str, str], body: str | bytes | None, timeout: urllib3.Timeout
    ) -> Answer:
        """Make a request; return the answer, of which no more than the head has been read.

        Raises:
            urllib3.exceptions.HTTPError, OSError: there is none.
        """
        credential = self._credentials.get()
        while True:
            answer = self._get_wires(credential).pool.request(
                method, f"{self._access.server.url}{path}", headers=self._headers(credential, headers), body=body,
                timeout=timeout, preload_content=False,
            )  # fmt: skip
            if answer.status != _UNAUTHORIZED or not self._credentials.renew(credential):
                return answer
            answer.drain_conn()
            credential = self._credentials.get()

    def open_websocket(self, path: str, protocol: str, seconds: float) -> websocket.WebSocket:
        """Open a WebSocket.

        Args:
            path: with its query.
            protocol: the one that is spoken on it.
            seconds: how long to wait for each part of the answer.

        Raises:
            websocket.WebSocketException, OSError: it can't be opened.
        """
        credential = self._credentials.get()
        while True:
            try:
                return self._open(path, protocol, credential, seconds)
            except websocket.WebSocketBadStatusException as error:
                if error.status_code != _UNAUTHORIZED or not self._credentials.renew(credential):
                    raise
                credential = self._credentials.get()

    def _open(self, path: str, protocol: str, credential: Credential, seconds: float) -> websocket.WebSocket:
        wire = self._get_wires(credential).connect(seconds)
        with contextlib.ExitStack() as stack:
            stack.callback(wire.close)
            stream = websocket.WebSocket(skip_utf8_validation=False)
            stream.connect(  # type: ignore[no-untyped-call]
                f"{self._access.server.url}{path}".replace("http", "ws", 1), socket=wire, redirect_limit=0,
                header=[f"{key}: {value}" for key, value in self._headers(credential, {}).items()]
                + [f"sec-websocket-protocol: {protocol}"],
            )  # fmt: skip
            stream.settimeout(None)
            stack.pop_all()
        return stream

    def _headers(self, credential: Credential, others: Mapping[str, str]) -> urllib3.HTTPHeaderDict:
        headers = urllib3.HTTPHeaderDict(others)
        if credential.authorization:
            headers["authorization"] = credential.authorization
        for key, value in self._access.user.acts_as:
            headers.add(key, value)
        return headers

    def _get_wires(self, credential: Credential) -> _Wires:
        """Return the wires for a client certificate; those of one that has ended are left to their last users."""
        with self._lock:
            if self._wires is None or self._wires.credential.key_pair != credential.key_pair:
                self._wires = _Wires(self._access, self._proxy, credential)
            return self._wires


class _Wires:
    """Connections with one client certificate, or without.

    Attributes:
        credential: whose they are.
        pool: makes requests.
    """

    def __init__(self, access: Access, through: proxy.Proxy | None, credential: Credential) -> None:
        self.credential = credential
        self._target, self._name, self._proxy = urlsplit(access.server.url), access.server.name, through
        self._context: ssl.SSLContext | None = None
        options: dict[str, Any] = {}
        if self._target.scheme == "https":
            self._context = tls.make_context(access.server, credential.key_pair, access.user.about)
            options = {"ssl_context": self._context, "server_hostname": self._name or None}
        if access.server.insecure:  # the kubeconfig says so, and kubectl says nothing either
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self.pool: urllib3.PoolManager = (
            urllib3.PoolManager(maxsize=_MOST_KEPT, retries=False, **options)
            if through is None
            else urllib3.ProxyManager(
                through.url, proxy_headers=through.headers, maxsize=_MOST_KEPT, retries=False, **options
            )
        )

    def connect(self, seconds: float) -> socket.socket:
        """Return a connection to the API server, through TLS and the proxy, with a limit for each of its waits."""
        host, port = self._target.hostname or "", self._target.port or proxy.PORTS[self._target.scheme]
        way = http.client.HTTPConnection(host, port, timeout=seconds)
        if self._proxy is not None:
            if self._proxy.scheme != "http":
                raise InvalidInput(
                    f"{self._proxy.about} names a proxy that streams to pods can't go through: it speaks TLS",
                    help="name an http:// proxy",
                )
            way = http.client.HTTPConnection(self._proxy.host, self._proxy.port, timeout=seconds)
            way.set_tunnel(f"[{host}]" if ":" in host else host, port, self._proxy.headers)
        try:
            way.connect()
        except BaseException as error:
            way.close()
            if isinstance(error, http.client.HTTPException):
                raise ConnectionError("the proxy before it speaks no HTTP") from error
            raise
        wire: socket.socket = way.sock
        return self._context.wrap_socket(wire, server_hostname=self._name or host) if self._context else wire


def _credentials(access: Access, tell: Callable[[str], None]) -> Credentials:
    """Return what knows the user's credentials, of which the first counts, as in client-go."""
    user = access.user
    if user.token_file is not None:
        return TokenFile(user, user.token_file)
    if found := fixed(user):
        return found
    return Fixed(Credential()) if user.plugin is None else FromPlugin(user, user.plugin, tell)
