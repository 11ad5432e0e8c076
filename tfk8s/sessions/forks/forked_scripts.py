"""Scripts that run as forks, each for a client that is connected.

A client sends its standard streams, and the script uses them directly. The client forwards signals over its connection,
and gets the script's exit code there. A script ends with its client. Standard library only: this file also runs in
pods.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.escalation import ESCALATION, catches_sigterm
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.sessions.forks.fork_client import ForkClient
from tfk8s.task import ipc

# Between SIGTERM and SIGKILL, without `grace` in the job file:
END_TIMEOUT = 15.0  # for a script whose user wants its end
KILL_TIMEOUT = 2.0  # for a script that has to end

# The event loop handles the end of a process and of a connection.
PEER_MAY_BE_GONE = contextlib.suppress(OSError)


@dataclass(eq=False, kw_only=True)
class RunningScript:
    """One script and its client.

    Attributes:
        connection: the connection to the client.
        command: the script's command line, for users.
        progress: the file for the script's progress.
        name: the name for commands; "" if a script's process is its name.
        since: the time of the request, seconds since the epoch.
        pid: the script's process, which leads its own process group; None until the fork server has forked.
        is_ending: whether the script has got SIGTERM from `ForkedScripts.end`.
    """

    connection: socket.socket
    command: str
    progress: Path
    name: str = ""
    since: float = field(default_factory=time.time)
    pid: int | None = None
    is_ending: bool = False


S = TypeVar("S", bound=RunningScript)


class ForkedScripts(Generic[S]):
    """Starts scripts as forks, and sends their exit codes to their clients.

    Args:
        loop: the loop of this process.
        forks: starts the forks.
        grace: the seconds between SIGTERM and SIGKILL; None for the defaults.
    """

    def __init__(self, loop: Loop, forks: ForkClient, grace: float | None = None) -> None:
        self._loop, self._forks = loop, forks
        self._grace = grace
        self._running: set[S] = set()

    def describe(self) -> list[ipc.Message]:
        """Return the running scripts as plain data, the latest first."""
        running = sorted(self._running, key=lambda script: script.since, reverse=True)
        return [
            {
                "pid": script.pid, "since": script.since, "command": script.command, "progress": str(script.progress),
                "name": script.name,
            }
            for script in running
        ]  # fmt: skip

    def add(self, script: S) -> None:
        """Count a script as running, and follow the signals of its client."""
        self._running.add(script)
        self._loop.on_readable(script.connection, lambda: self._on_client_message(script))

    def fork(self, script: S, module: str, request: ipc.Message, descriptors: Sequence[int]) -> None:
        """Run a script as a fork, with these descriptors as its 0, 1, 2, …."""
        self._forks.fork(_Fork(self, script), module, request, descriptors)

    def end(self, script: S) -> None:
        """End a script: SIGTERM, and SIGKILL after `grace`. A second SIGTERM could disturb a script that saves."""
        if script.is_ending:
            return
        script.is_ending = True
        self._signal(script, signal.SIGTERM)
        self._kill_after(script, KILL_TIMEOUT)

    def interrupt(self) -> None:
        """Interrupt all scripts of a pod that is deleted."""
        for script in list(self._running):
            self._interrupt(script)

    def stop_one(self, name: str, timeout: float) -> None:
        """Interrupt a script; kill it after the timeout, or after `grace`."""
        for script in [script for script in self._running if script.name == name]:
            self._interrupt(script)
            self._kill_after(script, timeout)

    def _interrupt(self, script: S) -> None:
        catches = self._grace is not None and script.pid is not None and catches_sigterm(script.pid)
        self._signal(script, signal.SIGTERM if catches else signal.SIGINT)

    def on_fork(self, script: S, pid: int) -> None:
        """Take the id of a script's process."""
        script.pid = pid
        if script not in self._running:  # the script was ended before it began
            processes.kill_group(pid, signal.SIGKILL)

    def on_lost(self, script: S, reason: str) -> None:
        """End a script whose fork server has ended."""
        if script in self._running:
            if script.pid is not None:
                processes.kill_group(script.pid, signal.SIGKILL)
            self.finish(script, {"error": reason})

    def on_exit(self, script: S, status: int) -> None:
        """Take the wait status of a script's process."""
        if script not in self._running:
            return
        if script.pid is not None:  # its group has the processes that the script left behind
            with PEER_MAY_BE_GONE:
                os.killpg(script.pid, signal.SIGKILL)
        self.finish(script, {"exit": os.waitstatus_to_exitcode(status)})

    def finish(self, script: S, message: ipc.Message) -> None:
        """Send the last message to a script's client."""
        self._running.discard(script)
        with contextlib.suppress(KeyError):  # the client has ended, and the loop does not watch it any more
            self._loop.forget(script.connection)
        with PEER_MAY_BE_GONE:
            ipc.send(script.connection, message)
        script.connection.close()
        with contextlib.suppress(OSError):
            script.progress.unlink()

    def _on_client_message(self, script: S) -> None:
        if (number := received_signal(script.connection)) is not None:
            self._signal(script, number)
            if number == signal.SIGTERM:  # the script may have a handler, as TensorFlow may
                self._kill_after(script, END_TIMEOUT)
            return
        self._loop.forget(script.connection)
        self.end(script)

    def _kill_after(self, script: S, timeout: float) -> None:
        self._loop.after(timeout if self._grace is None else self._grace, lambda: self._signal(script, signal.SIGKILL))

    def _signal(self, script: S, number: int) -> None:
        if script not in self._running:
            return
        if script.pid is None:  # the fork server still imports TensorFlow
            self.finish(script, {"exit": -number})
        else:
            processes.kill_group(script.pid, number)


def received_signal(connection: socket.socket) -> int | None:
    """Return the signal that a client sends; None if it is gone, or sends another message, as of another version."""
    try:
        received = ipc.receive(connection)
    except OSError:
        return None
    number = received[0].get("signal") if received else None
    return number if number in ESCALATION else None


def shown(arguments: Sequence[str], length: int) -> str:
    """Return a script's command line for users, at most `length` characters."""
    return shlex.join(arguments)[:length]


@dataclass(frozen=True, slots=True)
class _Fork(Generic[S]):
    scripts: ForkedScripts[S]
    script: S

    def on_fork(self, pid: int) -> None:
        self.scripts.on_fork(self.script, pid)

    def on_exit(self, status: int) -> None:
        self.scripts.on_exit(self.script, status)

    def on_lost(self, reason: str) -> None:
        self.scripts.on_lost(self.script, reason)
