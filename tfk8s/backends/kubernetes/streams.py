"""Streams through the API server: a connection to a pod's port, and the input of a command in it.

Both are WebSockets whose messages begin with the number of a channel (k8s.io/apimachinery, pkg/util/remotecommand and
kubelet's portforward/websocket.go, protocol v4.channel.k8s.io): a forwarded port has one for data and one for errors.
A stream on which nothing is said is asked for a sign of life every few seconds: load balancers drop idle ones, and of a
machine or a network that is gone, no connection tells.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

import websocket

from tfk8s.backends.kubernetes import errors, paths
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.transport import UNAUTHORIZED, Access
from tfk8s.errors import ClusterError, InvalidInput, TaskUnreachable

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _STATUS = 0, 3
_PORT_MESSAGE = 2  # the first message of each channel of a forwarded port is the port's number
_MOST_BUFFERED = 1 << 20
_BLOCK = 1 << 16
_PING_SECONDS = 2.0
_DEAD_SECONDS = 8.0
_OPEN_SECONDS = 30.0  # kubelet may have much to do


def dial(client: Client, namespace: str, pod: str, port: int) -> socket.socket:
    """Return a stream that is connected to a port of a pod.

    Raises:
        TaskUnreachable: there is no such pod, or none that runs. A port where nobody listens ends the stream.
    """
    try:
        stream = _open(client, paths.pod(namespace, pod, "portforward"), [("ports", port)])
    except errors.ApiError as error:
        if error.code == 403:
            raise
        raise TaskUnreachable(f'pod "{pod}" can\'t be reached: {error}') from error
    ours, theirs = socket.socketpair()
    threading.Thread(target=_relay, args=(stream, ours), name=f"tfk8s-dial-{pod}", daemon=True).start()
    return theirs


def execute(
    client: Client, namespace: str, pod: str, command: Sequence[str], data: Iterable[bytes], silence: float = 60.0
) -> None:
    """Run a command in a pod's container with `data` as its standard input, until it ends.

    The input has no end of its own: the command must know when it has all.

    Raises:
        ClusterError: the command failed; says what it wrote. Or nothing came of it for `silence` seconds.
    """
    query = [*(("command", word) for word in command), ("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    stream = _open(client, paths.pod(namespace, pod, "exec"), query)
    said = b""
    try:
        stream.settimeout(silence)
        for block in data:
            send(stream, block)
        while True:
            operation, message = stream.recv_data()
            if operation == websocket.ABNF.OPCODE_CLOSE:
                raise ClusterError(f"the stream to pod {pod} ended before {command[0]} did")
            if message[:1] == bytes([_STATUS]):
                if json.loads(message[1:]).get("status") != "Success":
                    raise ClusterError(f"{command[0]} failed in pod {pod}: {said.decode(errors='replace').strip()}")
                return
            said += message[1:]
    except (OSError, websocket.WebSocketException) as error:
        raise ClusterError(f"the stream to pod {pod} broke: {error}") from error
    finally:
        stream.close()


def attach(client: Client, namespace: str, pod: str) -> websocket.WebSocket:
    """Return a connection to the standard input of a pod's container; closing it is the input's end.

    Raises:
        ClusterError: it can't be attached to.
    """
    stream = _open(client, paths.pod(namespace, pod, "attach"), [("stdin", "true"), ("stdout", "false")])
    _give_up_after(stream, 0)  # never: a script may read late
    return stream


def send(stream: websocket.WebSocket, block: bytes) -> None:
    """Send a block of a container's standard input."""
    stream.send_binary(bytes([_DATA]) + block)


def _open(client: Client, path: str, query: Sequence[tuple[str, Any]]) -> websocket.WebSocket:
    url = f"{client.url}{path}?{urlencode(query)}"

    def open_with(access: Access) -> websocket.WebSocket | websocket.WebSocketBadStatusException:
        try:
            return _open_websocket(url, access)
        except websocket.WebSocketBadStatusException as error:
            return error

    def is_refused(opened: object) -> bool:
        return isinstance(opened, websocket.WebSocketBadStatusException) and opened.status_code == UNAUTHORIZED

    try:
        opened = client.transport.with_credentials(open_with, is_refused)
    except (OSError, websocket.WebSocketException) as error:
        raise errors.unreachable(error, client.context, client.url) from error
    if isinstance(opened, websocket.WebSocketBadStatusException):
        body = opened.resp_body if isinstance(opened.resp_body, bytes) else str(opened.resp_body or "").encode()
        raise errors.refused(opened.status_code, body, client.context) from opened
    _give_up_after(opened, _DEAD_SECONDS)
    return opened


def _open_websocket(url: str, access: Access) -> websocket.WebSocket:
    connection = _connect(urlsplit(url), access)
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        stream = websocket.WebSocket(skip_utf8_validation=False)
        headers = [f"{name}: {value}" for name, value in access.headers.iteritems()]
        stream.connect(  # type: ignore[no-untyped-call]
            url.replace("http", "ws", 1), socket=connection, redirect_limit=0,
            header=[*headers, f"sec-websocket-protocol: {_PROTOCOL}"],
        )  # fmt: skip
        stream.settimeout(None)
        stack.pop_all()
    return stream


def _connect(server: SplitResult, access: Access) -> socket.socket:
    """Return a connection to the API server. websocket-client has its own rules for proxies, so it does not connect."""
    host, port = server.hostname or "", server.port or (443 if server.scheme == "https" else 80)
    connection = http.client.HTTPConnection(host, port, timeout=_OPEN_SECONDS)
    if access.configuration.proxy:
        proxy = urlsplit(access.configuration.proxy)
        if proxy.scheme != "http":
            raise InvalidInput(
                "streams to pods can't go through a proxy that speaks TLS",
                help='name an http:// proxy in the kubeconfig ("proxy-url"), or in HTTPS_PROXY',
            )
        connection = http.client.HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=_OPEN_SECONDS)
        headers = access.configuration.proxy_headers or {}
        connection.set_tunnel(f"[{host}]" if ":" in host else host, port, headers)
    try:
        connection.connect()
    except http.client.HTTPException as error:
        connection.close()
        raise ConnectionError("the proxy before it speaks no HTTP") from error
    connected: socket.socket = connection.sock
    if server.scheme != "https":
        return connected
    return access.tls.wrap_socket(connected, server_hostname=access.configuration.tls_server_name or host)


def _give_up_after(stream: websocket.WebSocket, seconds: float) -> None:
    """Have what is sent to who is gone end the stream; else that would wait for a quarter of an hour."""
    if stream.sock is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        stream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * seconds))


def _relay(stream: websocket.WebSocket, ours: socket.socket) -> None:
    """Copy both ways until either side ends; one thread, since TLS connections do not bear two."""
    with contextlib.closing(stream), ours, contextlib.suppress(OSError, websocket.WebSocketException):
        ours.setblocking(False)
        stream.settimeout(_DEAD_SECONDS)  # of a message that has begun, too, the rest may never come
        _copy(stream, ours)


def _copy(stream: websocket.WebSocket, ours: socket.socket) -> None:
    remote = stream.sock
    assert remote is not None
    greeted: set[int] = set()
    buffer = bytearray()  # what came from the pod and was not taken yet
    life = _Life(stream)
    poll = select.poll()
    poll.register(remote, select.POLLIN)
    poll.register(ours, select.POLLIN)
    while True:
        full = len(buffer) > _MOST_BUFFERED
        poll.modify(remote, 0 if full else select.POLLIN)
        poll.modify(ours, select.POLLIN | (select.POLLOUT if buffer else 0))
        # A TLS connection may hold messages that it has read already, of which the poll knows nothing.
        held = isinstance(remote, ssl.SSLSocket) and remote.pending() > 0 and not full
        events = dict(poll.poll(0 if held else 1000 * _PING_SECONDS))
        if life.is_over(said=held or events.get(remote.fileno(), 0) != 0 or full):
            return
        if held or (not full and events.get(remote.fileno(), 0)):
            data = _receive(stream, greeted)
            if data is None:
                _drain(ours, buffer)
                return
            buffer += data
        if events.get(ours.fileno(), 0) & select.POLLOUT:
            del buffer[: ours.send(buffer)]
        if events.get(ours.fileno(), 0) & ~select.POLLOUT:
            block = ours.recv(_BLOCK)
            if not block:
                return
            stream.send_binary(bytes([_DATA]) + block)


class _Life:
    """Whether the other side of a stream still is there: it answers pings, be it busy or idle."""

    def __init__(self, stream: websocket.WebSocket) -> None:
        self._stream = stream
        self._heard = self._asked = time.monotonic()

    def is_over(self, *, said: bool) -> bool:
        """Return whether nothing was heard for too long; asks for a sign of life where nothing is `said`."""
        now = time.monotonic()
        if said:
            self._heard = now
        elif now - max(self._heard, self._asked) >= _PING_SECONDS:
            self._stream.ping()
            self._asked = now
        return now - self._heard > _DEAD_SECONDS


def _receive(stream: websocket.WebSocket, greeted: set[int]) -> bytes | None:
    """Return the data in the next message, or None at the end or at an error."""
    operation, frame = stream.recv_data_frame(True)
    if operation == websocket.ABNF.OPCODE_CLOSE:
        return None
    if operation != websocket.ABNF.OPCODE_BINARY or not frame.data:
        return b""
    channel, data = frame.data[0], frame.data[1:]
    if channel not in greeted:
        greeted.add(channel)
        data = data[_PORT_MESSAGE:]
    if channel == _DATA:
        return bytes(data)
    return None if data else b""


def _drain(ours: socket.socket, buffer: bytearray) -> None:
    ours.setblocking(True)
    ours.settimeout(5)
    ours.sendall(buffer)
