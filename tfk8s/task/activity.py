"""Connections to a task's server: each session, script and forward holds one for as long as it lasts.

A pod with `TFK8S_ACTIVITY_PORT` answers each connection to that port with its clients, and with the seconds since it
saw each of them last. The cluster's Job asks (`tfk8s.task.lifetime`). Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ESTABLISHED, LISTENING = "01", "0A"  # states of connections
_LOOK_INTERVAL = 1.0
# Kubelet's probes connect for less than a millisecond. A connection counts if two looks see it.
_MIN_AGE = 0.5
_ANSWER_TIMEOUT = 1.0
_RETRY_INTERVAL = 0.1
_MAX_ANSWER = 1 << 20  # of 10,000 clients: half of it


class Connection(NamedTuple):
    """An established TCP connection, as one of its two ends has it.

    Attributes:
        host, port: of this end.
        peer_host, peer_port: of the other end.
        inode: of this end's socket.
    """

    host: str
    port: int
    peer_host: str
    peer_port: int
    inode: int


def read_tables(names: Iterable[str] = ("tcp", "tcp6")) -> str:
    """Return the kernel's tables of the connections in this network namespace (proc_net_tcp(5))."""
    texts = []
    for name in names:
        with contextlib.suppress(FileNotFoundError), open(f"/proc/net/{name}") as table:  # kernels may lack IPv6
            texts.append(table.read())
    return "".join(texts)


def connections(tables: str, state: str = ESTABLISHED) -> Iterator[Connection]:
    """Yield the connections of `read_tables` in a state, by default the established ones."""
    for line in tables.splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[3] == state:
            yield Connection(*address(fields[1]), *address(fields[2]), int(fields[9]))


def address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address, which the tables have as numbers in the machine's byte order."""
    digits, _, port = text.partition(":")
    words = (int(digits[start : start + 8], 16) for start in range(0, len(digits), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    host = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
    return host.removeprefix("::ffff:") if "." in host else host, int(port, 16)


class Clients:
    """The hosts that were connected to a port, and when.

    Args:
        port: the port of the task's server.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._since: dict[tuple[str, int], float] = {}  # the first look that saw a connection
        self._last: dict[str, float] = {}  # the last look that saw a host

    def look(self, tables: str, now: float) -> None:
        """Note the connections of `read_tables`."""
        current = [(item.peer_host, item.peer_port) for item in connections(tables) if item.port == self._port]
        self._since = {peer: self._since.get(peer, now) for peer in current}
        self._last.update({host: now for (host, _), since in self._since.items() if now - since >= _MIN_AGE})

    def ages(self, now: float) -> dict[str, float]:
        """Return the seconds since each host was connected."""
        return {host: round(now - last, 1) for host, last in self._last.items()}


def serve(port: int, server_port: int) -> None:
    """Answer on a port, for as long as this process lives.

    Args:
        port: the port to answer on.
        server_port: the port of the task's server.
    """
    clients, pause = Clients(server_port), threading.Event()
    with listen(port) as listener:
        listener.settimeout(_LOOK_INTERVAL)
        while True:
            try:
                _answer_next(listener, clients)
            except OSError:  # the asker is gone, or the process has too many open files
                pause.wait(_RETRY_INTERVAL)


def listen(port: int) -> socket.socket:
    """Return a socket that listens on every interface."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=family == socket.AF_INET6)


def _answer_next(listener: socket.socket, clients: Clients) -> None:
    try:
        stream, _ = listener.accept()
    except TimeoutError:  # nobody asks
        clients.look(read_tables(), time.monotonic())
        return
    with stream:
        clients.look(read_tables(), time.monotonic())
        stream.settimeout(_ANSWER_TIMEOUT)
        stream.sendall(json.dumps(clients.ages(time.monotonic())).encode())


def ask(host: str, port: int, timeout: float) -> dict[str, float] | None:
    """Return the seconds since each client of a task was connected; None if the task does not answer.

    Args:
        host: the task's, or another pod's, where any program may answer.
        port: the port of `serve`.
        timeout: for the whole answer, in seconds.
    """
    try:
        ages = json.loads(_receive(host, port, time.monotonic() + timeout))
        return {client: max(0.0, float(age)) for client, age in ages.items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):  # another program's answer
        return None


def _receive(host: str, port: int, deadline: float) -> bytes:
    """Return all that a server sends until it closes the connection."""
    received = b""
    with socket.create_connection((host, port), deadline - time.monotonic()) as stream:
        while len(received) <= _MAX_ANSWER and (seconds := deadline - time.monotonic()) > 0:
            stream.settimeout(seconds)
            part = stream.recv(_MAX_ANSWER)
            if not part:
                return received
            received += part
    raise TimeoutError("the answer is too long or too late")
