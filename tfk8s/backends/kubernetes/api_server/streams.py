"""Streams to pods through the API server: connections to ports. And the begin of this process' standard input.

Streams are WebSockets. Each message begins with the number of a channel; a forwarded port has one channel for data and
one for errors (k8s.io/apimachinery, pkg/util/remotecommand; kubelet's portforward/websocket.go). Quiet streams are
pinged: load balancers drop idle connections, and a dead machine or network closes none.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import websocket

from tfk8s import platforms, polling
from tfk8s.backends.kubernetes.api_server import errors, paths, web_sockets
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.transport import UNAUTHORIZED, Access, connect
from tfk8s.errors import TaskUnreachable

PROTOCOL = "v4.channel.k8s.io"
_DATA = 0
_PORT_MESSAGE = 2  # the first message of each channel of a forwarded port is the port's number
_MAX_BUFFERED = 1 << 20
_BLOCK = 1 << 16
PING_INTERVAL = 2.0
DEAD_PEER_TIMEOUT = 8.0
OPEN_TIMEOUT = 30.0  # a busy kubelet is slow


def dial(client: Client, namespace: str, pod: str, port: int) -> socket.socket:
    """Return a stream to a port of a pod. The stream ends at once if nothing listens on the port.

    Raises:
        TaskUnreachable: the pod does not exist, or does not run.
    """
    with contextlib.ExitStack() as opened:
        with reaching(pod):
            stream = open_stream(client, paths.pod(namespace, pod, "portforward"), [("ports", port)])
        opened.callback(stream.close)
        local, caller = map(opened.enter_context, socket.socketpair())
        threading.Thread(target=relay, args=(stream, local), name=f"tfk8s-dial-{pod}", daemon=True).start()
        opened.pop_all()
    return caller


@contextlib.contextmanager
def reaching(pod: str) -> Iterator[None]:
    """Raise TaskUnreachable for a refusal of the API server in the `with`, unless a permission is missing."""
    try:
        yield
    except errors.ApiError as error:
        if error.code == 403:
            raise
        raise TaskUnreachable(f'pod "{pod}" can\'t be reached: {error}') from error


def is_input(descriptor: int) -> bool:
    """Return whether a descriptor is a pipe or a file. A terminal, /dev/null and a closed descriptor are no input.

    On Windows, nothing is: there, tfk8s can't wait for a pipe.
    """
    try:
        return platforms.POLLS_FILES and not stat.S_ISCHR(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def begin_stdin(descriptor: int = 0) -> bytes | None:
    """Return the begin of this process' standard input that is there already; None without an input, or at its end."""
    if not is_input(descriptor):
        return None
    try:
        return os.read(descriptor, _BLOCK) or None if polling.readable(descriptor, 0) else b""
    except OSError:
        return None


def _send(stream: websocket.WebSocket, block: bytes) -> None:
    stream.send_binary(bytes([_DATA]) + block)


def open_stream(
    client: Client, path: str, query: Sequence[tuple[str, Any]], protocols: Sequence[str] = (PROTOCOL,)
) -> websocket.WebSocket:
    """Return a WebSocket to the API server, whose writes fail once the peer is dead.

    Args:
        path: of a subresource of a pod.
        query: its options.
        protocols: the WebSocket's protocols, the best first.

    Raises:
        ApiError: the API server refuses the stream.
        BackendUnreachable: there is no connection.
    """
    url = f"{client.url}{path}{'&' if '?' in path else '?'}{urlencode(query)}"

    def open_with(access: Access) -> websocket.WebSocket | websocket.WebSocketBadStatusException:
        try:
            return _open_websocket(url, access, protocols)
        except websocket.WebSocketBadStatusException as error:
            return error

    def is_unauthorized(opened: object) -> bool:
        return isinstance(opened, websocket.WebSocketBadStatusException) and opened.status_code == UNAUTHORIZED

    try:
        opened = client.transport.with_credentials(open_with, is_unauthorized)
    except (OSError, websocket.WebSocketException) as error:
        raise errors.unreachable(error, client.context, client.url) from error
    if isinstance(opened, websocket.WebSocketBadStatusException):
        body = opened.resp_body if isinstance(opened.resp_body, bytes) else str(opened.resp_body or "").encode()
        raise errors.from_response(opened.status_code, body, client.context) from opened
    return opened


def _open_websocket(url: str, access: Access, protocols: Sequence[str]) -> websocket.WebSocket:
    connection = connect(access, OPEN_TIMEOUT)
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        headers = [f"{name}: {value}" for name, value in access.headers.iteritems()]
        headers.append(f"sec-websocket-protocol: {', '.join(protocols)}")
        stream = web_sockets.open_web_socket(url.replace("http", "ws", 1), connection, headers, OPEN_TIMEOUT)
        set_write_timeout(stream, DEAD_PEER_TIMEOUT)
        stack.pop_all()
    return stream


def set_write_timeout(stream: websocket.WebSocket, seconds: float) -> None:
    """Fail writes to a peer that is dead, or reads nothing, after `seconds`; 0 is TCP's 15 minutes for a dead one."""
    if stream.sock is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        stream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * seconds))


def relay(stream: websocket.WebSocket, local: socket.socket, timeout: float = DEAD_PEER_TIMEOUT) -> None:
    """Copy between a forwarded port and a local socket, until either ends or the peer is silent for `timeout` seconds.

    One thread copies in both directions, because two threads can't share a TLS connection.
    """
    with contextlib.closing(stream), local, contextlib.suppress(OSError, websocket.WebSocketException):
        local.setblocking(False)
        stream.settimeout(timeout)  # the rest of a message may never arrive
        _copy(stream, local, Heartbeat(stream.ping, timeout))


class Heartbeat:
    """Pings a silent peer, and detects a dead peer. A peer responds to pings even if it is busy.

    Args:
        ping: sends a ping.
        timeout: a peer that is silent for longer is dead.
    """

    def __init__(self, ping: Callable[[], None], timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ping, self._timeout, self._clock = ping, timeout, clock
        self._last_received = self._last_ping = clock()

    def is_dead(self, *, received: bool) -> bool:
        """Return whether the peer is dead. Sends a ping if one is due.

        Args:
            received: whether anything was received since the last call.
        """
        now = self._clock()
        if received:
            self._last_received = now
        elif now - max(self._last_received, self._last_ping) >= PING_INTERVAL:
            self._ping()
            self._last_ping = now
        return now - self._last_received > self._timeout


def has_decrypted(connection: socket.socket | None) -> bool:
    """Return whether a TLS connection has decrypted bytes, which `poll` does not report."""
    return isinstance(connection, ssl.SSLSocket) and connection.pending() > 0


def _copy(stream: websocket.WebSocket, local: socket.socket, heartbeat: Heartbeat) -> None:
    remote = stream.sock
    assert remote is not None
    opened: set[int] = set()
    buffer = bytearray()  # from the pod, and not yet written to `local`
    pod, caller = remote.fileno(), local.fileno()
    while True:
        is_full = len(buffer) > _MAX_BUFFERED
        has_bytes = has_decrypted(remote) and not is_full
        sources, sinks = [caller] if is_full else [pod, caller], [caller] if buffer else []
        readable, writable = polling.events(sources, sinks, 0 if has_bytes else PING_INTERVAL)
        is_readable = has_bytes or pod in readable
        if heartbeat.is_dead(received=is_readable or is_full):
            return
        if is_readable and not is_full:
            data = _receive(stream, opened)
            if data is None:
                local.settimeout(5)
                local.sendall(buffer)
                return
            buffer += data
        if caller in writable:
            del buffer[: local.send(buffer)]
        if caller in readable:
            block = local.recv(_BLOCK)
            if not block:
                return
            _send(stream, block)


def _receive(stream: websocket.WebSocket, opened: set[int]) -> bytes | None:
    """Return the data in the next message, or None at the end or at an error; `opened` are the channels so far."""
    operation, frame = stream.recv_data_frame(True)
    if operation == websocket.ABNF.OPCODE_CLOSE:
        return None
    if operation != websocket.ABNF.OPCODE_BINARY or not frame.data:
        return b""
    channel, data = frame.data[0], frame.data[1:]
    if channel not in opened:
        opened.add(channel)
        data = data[_PORT_MESSAGE:]
    if channel == _DATA:
        return bytes(data)
    return None if data else b""
