"""The supervisor's part of the way out: it starts the process, learns the way, and gives processes their variables."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from tfk8s import polling
from tfk8s.backends.local.way_out import helper_programs, process, resolver
from tfk8s.core.addresses import LOOPBACK
from tfk8s.core.job_file.mappings import Destination
from tfk8s.core.network import reach
from tfk8s.core.network.way_out import Way
from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.task import ipc
from tfk8s.task.programs import unreachable

_WAIT_TIMEOUT = 8.0  # for two programs, of which each is ready in 20 ms
_MESSAGE_TIMEOUT = 2.0
_BACKLOG = 128
_PROXIED = ("https_proxy", "http_proxy")


def planned(allow_to: Collection[Destination] | None, *, shared: bool) -> Way:
    """Return the way that a new cluster tries first.

    Args:
        allow_to: `network.allow_to` of the job file.
        shared: whether the tasks have no network of their own.
    """
    if shared:
        return Way.MACHINE if allow_to is None else Way.UNKEPT
    if allow_to is not None:
        return Way.LIST if allow_to else Way.CLOSED
    return next(iter(helper_programs.installed()), Way.PROXY)


class WayOut:
    """The way out of a cluster's network.

    Args:
        allow_to: `network.allow_to` of the job file.
        environment: the variables that name the user's own proxy.
        shared: whether the tasks have no network of their own.

    Attributes:
        way: the way, as far as it is known.
    """

    def __init__(
        self, allow_to: Collection[Destination] | None, environment: Mapping[str, str], *, shared: bool
    ) -> None:
        self.way = planned(allow_to, shared=shared)
        self._proxy = ""
        self._connection: socket.socket | None = None
        if shared:
            return
        self._connection, other = socket.socketpair()
        ranges = reach.allowed(allow_to)
        self._connection.settimeout(_MESSAGE_TIMEOUT)

        def serve() -> None:
            process.serve(socket.socket(fileno=3), ranges, environment)

        null = os.open(os.devnull, os.O_RDONLY)
        processes.run_in_fork(serve, [null, 1, 2, other.fileno()])
        os.close(null)
        other.close()

    def prepare(self, folder: Path) -> None:
        """Make names known in the network of this process, which may mount."""
        if self.way.is_program:
            try:
                resolver.prepare(folder)
            except OSError as error:
                print(f"no names {self.way.text}: {error}", file=sys.stderr, flush=True)  # noqa: T201 - supervisor.log
                self.way = Way.PROXY

    def open(self, taken: Collection[int], *, shared: bool) -> None:
        """Hand the network of this process, which it has just entered, to the way out.

        Args:
            taken: the ports of the tasks, which the proxy leaves free.
            shared: whether this process has kept the machine's network, and needs no way out.

        Raises:
            OSError: the network has no loopback interface.
        """
        if self._connection is None:
            return
        if shared:
            self._connection.close()  # which ends the process
            self.way = Way.UNKEPT if self.way is Way.LIST else Way.MACHINE
            self._connection = None
            return
        with _listener(taken) as listener, socket.socket(type=socket.SOCK_DGRAM) as probe:
            self._proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with contextlib.suppress(BrokenPipeError):  # `start` notices
                ipc.send(self._connection, {"pid": os.getpid(), "way": self.way}, [listener.fileno(), probe.fileno()])

    def start(self, loop: Loop, on_refused: Callable[[str], object] = lambda _: None) -> None:
        """Wait until the way is known, which takes a program a moment, and give this process its variables.

        Args:
            loop: takes the later messages of the way out's process.
            on_refused: called with the reason for a refused request.
        """
        if (connection := self._connection) is None:
            return
        if self.way.is_program:
            if polling.readable(connection.fileno(), _WAIT_TIMEOUT):
                self._read(on_refused)
            else:
                self.way = Way.BROKEN
        variables = self.variables(os.environ)
        os.environ.clear()
        os.environ.update(variables)

        def read() -> None:
            if not self._read(on_refused):
                loop.forget(connection)
                connection.close()

        loop.on_readable(connection, read)

    def _read(self, on_refused: Callable[[str], object]) -> bool:
        """Take one message; return False if the process has ended."""
        assert self._connection is not None
        try:
            received = ipc.receive(self._connection)
        except (OSError, ValueError):
            received = None
        if received is None:
            self.way = Way.BROKEN
        elif "way" in received[0]:
            self.way = Way(received[0]["way"])
        else:
            on_refused(received[0]["refused"])
        return received is not None

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment whose HTTP clients take the way out, and whose gRPC does not.

        Args:
            environment: the whole environment of a process.
        """
        if not self.way.has_proxy:
            return dict(environment)
        kept = {name: value for name, value in environment.items() if name.lower() != "all_proxy"}
        proxied = {spelled: self._proxy for name in _PROXIED for spelled in (name, name.upper())}
        direct = dict.fromkeys(("no_proxy", "NO_PROXY", "no_grpc_proxy"), ",".join(LOOPBACK))
        return {**kept, **proxied, **direct, unreachable.VARIABLE: self.way.cause}


def _listener(taken: Collection[int]) -> socket.socket:
    """Return a socket that listens on loopback, at a port that no task needs."""
    while True:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        if listener.getsockname()[1] not in taken:
            listener.listen(_BACKLOG)
            return listener
        listener.close()
