"""The client of the fork server: starts the fork server, and asks for forks."""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.task import ipc
from tfk8s.task.programs.import_variables import read_at_import

FORK_SERVER = "tfk8s.sessions.forks.fork_server"


class Forked(Protocol):
    """The owner of a fork."""

    def on_fork(self, pid: int) -> None:
        """Take the id of the process, which leads its own process group."""

    def on_exit(self, status: int) -> None:
        """Take the wait status of the process."""

    def on_lost(self, reason: str) -> None:
        """Take the reason why the fork server has ended; all forks end with the fork server."""


class ForkClient:
    """Asks the fork server for forks, and starts the fork server when needed.

    Args:
        loop: the loop of this process, which has one thread.
        command: starts the fork server: an interpreter, and its arguments.
        environment: the whole environment of the fork server.
        log: the file for the output of the fork server; None is this process' standard error.
    """

    def __init__(
        self, loop: Loop, command: Sequence[str], environment: dict[str, str], log: Path | None = None
    ) -> None:
        self._loop, self._command, self._environment, self._log = loop, command, environment, log
        self._server: socket.socket | None = None
        self._queued: deque[Forked] = deque()  # requests that the fork server has not answered
        self._running: dict[int, Forked] = {}

    def prepare(self) -> None:
        """Start the fork server, which imports TensorFlow for later forks."""
        if self._server is not None:
            return
        client_end, server_end = socket.socketpair()
        try:
            with server_end, open(self._log or os.dup(2), "ab") as log, open(os.devnull) as null:
                descriptors = [null.fileno(), log.fileno(), log.fileno(), server_end.fileno()]
                pid = processes.spawn(self._command, descriptors, self._environment)
        except OSError:  # no descriptor or process is left; the next request tries again
            client_end.close()
            raise
        self._server = client_end
        self._loop.on_readable(self._server, self._on_message)
        self._loop.on_end(pid, lambda _: None)

    def equals_interpreter(self, python: str, environment: Mapping[str, str], ignored: Collection[str] = ()) -> bool:
        """Return whether a fork equals a new interpreter with this environment.

        Args:
            python: the interpreter.
            environment: its whole environment.
            ignored: variables that make no difference.
        """
        mine, other = (read_at_import(variables) for variables in (self._environment, environment))
        differing = {name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name)}
        return python == self._command[0] and differing <= set(ignored)

    def fork(self, owner: Forked, module: str, request: ipc.Message, descriptors: Sequence[int]) -> None:
        """Ask for a fork. The fork server may still import TensorFlow for seconds.

        The request travels in a file, so that the socket's buffer has room for hundreds of requests. This process
        must never block.

        Args:
            owner: learns the id and the end of the fork.
            module: the module that the fork runs, which has functions `main` and `exit_process`.
            request: the fork's `arguments`, `folder`, `umask` and `environment`.
            descriptors: the fork's 0, 1, 2, ….
        """
        self.prepare()
        assert self._server is not None
        with os.fdopen(os.memfd_create("request"), "w+") as body:
            json.dump({**request, "module": module}, body)
            body.flush()
            body.seek(0)
            self._queued.append(owner)
            try:
                ipc.send(self._server, {}, [body.fileno(), *descriptors])
            except OSError:
                self._on_server_exit()

    def _on_message(self) -> None:
        assert self._server is not None
        try:
            received = ipc.receive(self._server)
        except OSError:  # the fork server was killed before it read a request
            received = None
        if received is None:
            self._on_server_exit()
        elif "pid" in received[0]:
            owner, pid = self._queued.popleft(), received[0]["pid"]
            self._running[pid] = owner
            owner.on_fork(pid)
        else:
            self._running.pop(received[0]["ended"]).on_exit(received[0]["status"])

    def _on_server_exit(self) -> None:
        """Give up the forks of a fork server that has ended; the next request starts a new one."""
        assert self._server is not None
        self._loop.forget(self._server)
        self._server.close()
        self._server = None
        lost = [*self._running.values(), *self._queued]
        self._running.clear()
        self._queued.clear()
        for owner in lost:
            where = f"; {self._log} has its last lines" if self._log else ""
            owner.on_lost(f"the process that runs scripts ended{where}")
