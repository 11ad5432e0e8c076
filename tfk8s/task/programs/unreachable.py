"""A line for each server that a closed network keeps a script or a program from: libraries try again in silence.

A NetworkPolicy drops packets, so the kernel waits two minutes for an answer. A local cluster's network without a way
out has no route, so a connection fails at once. Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NoReturn

from tfk8s.task import activity

VARIABLE = "TFK8S_WAY_OUT"  # why a local cluster's network is closed, in words
_SYN_SENT = "02"  # a state in /proc/net/tcp
_DNS = 53
_MIN_AGE = 4.0
LOOK_INTERVAL = 1.0
_MAX_NOTES = 1000  # of a process
_CLOSED = "network.allow_to of the job file, or another NetworkPolicy, may close the way to it"


# Words of the C library, of Go, Node.js, curl, wget and git for a connection or a name that found no network.
_COMPLAINT = re.compile(
    r"network (?:is )?unreachable|ENETUNREACH|EAI_AGAIN|failure in name resolution|name or service not known"
    r"|resolve host",
    re.IGNORECASE,
)


class Unanswered:
    """The servers that do not answer anybody in this network namespace.

    Args:
        own_ports: the ports of the cluster's tasks, which have other messages.
    """

    def __init__(self, own_ports: Collection[int]) -> None:
        self._own_ports = own_ports
        self._since: dict[tuple[str, int, str], float] = {}
        self._noted: set[str] = set()

    def look(self) -> Iterator[str]:
        """Yield a line for each server that has not answered for seconds, once."""
        yield from self.judge(activity.read_tables(), activity.read_tables(("udp", "udp6")), time.monotonic())

    def judge(self, tcp: str, udp: str, now: float) -> Iterator[str]:
        """Yield the lines for the kernel's tables of connections at a time.

        A library that tries again has another socket for the same server. A resolver asks from one socket.
        """
        answered = {(item.peer_host, item.peer_port) for item in activity.connections(tcp)}
        asked = {
            *((*server, "") for server, _ in peers(tcp, _SYN_SENT) if server not in answered),
            *((*server, inode) for server, inode in peers(udp) if server[1] == _DNS),
        }
        self._since = {key: self._since.get(key, now) for key in asked if key[1] not in self._own_ports}
        for (host, port, _), since in self._since.items():
            server = _server(host, port)
            if now - since >= _MIN_AGE and server not in self._noted and len(self._noted) < _MAX_NOTES:
                self._noted.add(server)
                what = f"{server}, which resolves names," if port == _DNS else server
                yield f"no answer from {what} for {now - since:.0f} s: {_CLOSED}"


def watch(own_ports: Collection[int], say: Callable[[str], object]) -> None:
    """Say which servers do not answer, for as long as this process lives.

    Args:
        own_ports: the ports of the cluster's tasks.
        say: is called with a line, in another thread.
    """
    unanswered, pause = Unanswered(own_ports), threading.Event()

    def look() -> NoReturn:
        while True:
            pause.wait(LOOK_INTERVAL)
            for line in unanswered.look():
                say(line)

    threading.Thread(target=look, name="tfk8s-unreachable", daemon=True).start()


def explain(environment: Mapping[str, str], say: Callable[[str], object]) -> None:
    """Say why connections of Python's sockets fail, and names, if this network is closed.

    Args:
        environment: the variables of this process.
        say: is called with a line.
    """
    if not (cause := environment.get(VARIABLE)):
        return
    noted: set[str] = set()

    def note(server: str) -> None:
        if server not in noted and len(noted) < _MAX_NOTES:
            noted.add(server)
            say(f"{cause}: {server} stays out of reach")

    _explain_connections(note)
    _explain_names(note)


def _explain_connections(note: Callable[[str], None]) -> None:
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def judge(connecting: socket.socket, address: Any, number: int | None) -> None:
        # A datagram socket that connects to an address elsewhere often just asks for its own address.
        if number == errno.ENETUNREACH and connecting.type == socket.SOCK_STREAM and isinstance(address, tuple):
            note(_server(*address[:2]))

    def connecting(self: socket.socket, address: Any) -> None:
        try:
            connect(self, address)
        except OSError as error:
            judge(self, address, error.errno)
            raise

    def connecting_ex(self: socket.socket, address: Any) -> int:
        number = connect_ex(self, address)
        judge(self, address, number)
        return number

    socket.socket.connect = connecting  # type: ignore[method-assign,assignment]
    socket.socket.connect_ex = connecting_ex  # type: ignore[method-assign,assignment]


def _explain_names(note: Callable[[str], None]) -> None:
    getaddrinfo = socket.getaddrinfo

    def resolving(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return getaddrinfo(host, port, *arguments, **options)
        except socket.gaierror:
            name = os.fsdecode(host) if isinstance(host, str | bytes) else ""
            if name and name != socket.gethostname():
                note(f"{name}:{port}" if port else name)
            raise

    socket.getaddrinfo = resolving


class Complaints:
    """Explains lines in which a command says that it finds no network: its sockets can't be watched as Python's are.

    Args:
        environment: the variables of the command.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._cause = environment.get(VARIABLE)
        self._noted: set[str] = set()

    def explain(self, line: str) -> str:
        """Return why the command has written a line, once for each; "" for other lines, and in an open network."""
        if not self._cause or line in self._noted or len(self._noted) >= _MAX_NOTES or not _COMPLAINT.search(line):
            return ""
        self._noted.add(line)
        return f"{self._cause}: {line}"


def peers(table: str, state: str = "") -> Iterator[tuple[tuple[str, int], str]]:
    """Yield the other end of each socket with a state, and the socket's inode."""
    for line in table.splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[0].endswith(":") and fields[3] == (state or fields[3]):
            yield activity.address(fields[2]), fields[9]


def _server(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
