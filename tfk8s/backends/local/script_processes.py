"""The processes of session scripts in a local cluster: forks of the fork server, or interpreters of their own.

A client sends its standard streams, and the script uses them directly. The client forwards signals over its connection,
and the supervisor answers with the script's exit code. A script ends with its client.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfk8s.backends.local import interpreter, ipc, processes
from tfk8s.backends.local.event_loop import Loop
from tfk8s.core.status import MAX_COMMAND_LENGTH
from tfk8s.sessions.task_events import TaskEvent

_KILL_TIMEOUT = 2.0  # between SIGTERM and SIGKILL for a script that has to end

# The event loop handles the end of a process and of a connection.
_PEER_MAY_BE_GONE = contextlib.suppress(OSError)

# The signals of a client's first, second, … Ctrl-C.
ESCALATION = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


@dataclass(eq=False)
class RunningScript:
    """One script and its client.

    Attributes:
        connection: the connection to the client.
        events: a descriptor, from which the script's runner reads the lost tasks.
        fresh: whether the script has its own interpreter, instead of a fork of the fork server.
        command: the script's command line, for users.
        since: the time of the request, seconds since the epoch.
        pid: the script's process, which leads its own process group; None until the fork server has forked.
    """

    connection: socket.socket
    events: int
    fresh: bool
    command: str
    since: float = field(default_factory=time.time)
    pid: int | None = None


class ScriptRunner:
    """Starts scripts, and sends their exit codes to their clients."""

    def __init__(self, loop: Loop, python: str, environment: dict[str, str], log: Path) -> None:
        self._loop, self._python, self._environment, self._log = loop, python, environment, log
        self._server: socket.socket | None = None
        self._server_pid = 0
        self._queued: deque[RunningScript] = deque()  # requests to the fork server that it has not answered
        self._running: set[RunningScript] = set()

    def describe(self) -> list[ipc.Message]:
        """Return the running scripts as plain data, the latest first."""
        running = sorted(self._running, key=lambda script: script.since, reverse=True)
        return [{"pid": script.pid, "since": script.since, "command": script.command} for script in running]

    def prepare(self) -> None:
        """Start the fork server, which imports TensorFlow for later scripts."""
        if self._server is not None:
            return
        self._server, server_end = socket.socketpair()
        with self._log.open("ab") as log, open(os.devnull) as null:
            command = interpreter.command(self._python, "tfk8s.backends.local.fork_server")
            descriptors = [null.fileno(), log.fileno(), log.fileno(), server_end.fileno()]
            self._server_pid = processes.spawn(command, descriptors, self._environment)
        server_end.close()
        self._loop.on_readable(self._server, self._on_server_message)
        self._loop.on_end(self._server_pid, lambda _: None)

    def run(self, connection: socket.socket, request: ipc.Message, streams: Sequence[int]) -> None:
        """Start a script for a client.

        Args:
            connection: the connection to the client, which this object closes.
            request: the request `run`.
            streams: the client's standard streams and its file for notes, which this function closes.
        """
        read, write = os.pipe()
        fresh = request["fresh"] or not self._can_fork(request)
        shown = shlex.join(request["arguments"])[:MAX_COMMAND_LENGTH]
        script = RunningScript(connection, write, fresh, shown)
        self._running.add(script)
        self._loop.on_readable(connection, lambda: self._on_client_message(script))
        request = {**request, "arguments": [f"--events={len(streams)}", *request["arguments"]]}
        if fresh:
            script.pid = self._spawn(request, [*streams, read])
            self._loop.on_end(script.pid, lambda status: self._on_exit(script, status))
        else:
            self._queued.append(script)
            self._send_to_server(request, [*streams, read])
        for descriptor in (*streams, read):
            os.close(descriptor)

    def _send_to_server(self, request: ipc.Message, descriptors: Sequence[int]) -> None:
        """Send a request to the fork server, which may still import TensorFlow for seconds.

        The request travels in a file, so that the socket's buffer has room for hundreds of requests. The supervisor
        must never block.
        """
        self.prepare()
        assert self._server is not None
        with os.fdopen(os.memfd_create("request"), "w+") as body:
            json.dump(request, body)
            body.flush()
            body.seek(0)
            try:
                ipc.send(self._server, {}, [body.fileno(), *descriptors])
            except OSError:
                self._on_server_exit()

    def send_event(self, event: TaskEvent) -> None:
        """Send an event to the running scripts."""
        for script in self._running:
            with _PEER_MAY_BE_GONE:
                os.write(script.events, event.to_line())

    def stop(self, reason: str) -> None:
        """End all scripts, which takes at most `_KILL_TIMEOUT`, and tell their clients what became of the cluster."""
        for script in list(self._running):
            with _PEER_MAY_BE_GONE:
                ipc.send(script.connection, {"cluster": reason})
            self._end(script)

    def _end(self, script: RunningScript) -> None:
        self._signal(script, signal.SIGTERM)
        self._loop.after(_KILL_TIMEOUT, lambda: self._signal(script, signal.SIGKILL))

    def _can_fork(self, request: ipc.Message) -> bool:
        """Return whether a fork of the fork server equals a new interpreter for the request."""
        same = interpreter.read_at_import(request["environment"]) == interpreter.read_at_import(self._environment)
        return same and request["python"] == self._python

    def _spawn(self, request: ipc.Message, descriptors: Sequence[int]) -> int:
        command = interpreter.command(request["python"], "tfk8s.sessions.runner", *request["arguments"])
        environment = {"PYTHONUNBUFFERED": "1", **request["environment"]}
        return processes.spawn(
            command, descriptors, environment, request["folder"], umask=request["umask"], new_session=True
        )

    def _on_server_message(self) -> None:
        assert self._server is not None
        try:
            received = ipc.receive(self._server)
        except OSError:  # the fork server was killed before it read a request
            received = None
        if received is None:
            self._on_server_exit()
        elif "pid" in received[0]:
            script = self._queued.popleft()
            script.pid = received[0]["pid"]
            if script not in self._running:  # the script was ended before it began
                _kill(script.pid, signal.SIGKILL)
        else:
            for script in [script for script in self._running if script.pid == received[0]["ended"]]:
                self._on_exit(script, received[0]["status"])

    def _on_server_exit(self) -> None:
        """End the scripts of a fork server that has ended; the next script starts a new one."""
        assert self._server is not None
        self._loop.forget(self._server)
        self._server.close()
        self._server = None
        self._queued.clear()
        reason = f"the process that runs scripts ended; {self._log} has its last lines"
        for script in [script for script in self._running if not script.fresh]:
            if script.pid is not None:
                _kill(script.pid, signal.SIGKILL)
            self._finish(script, {"error": reason})

    def _on_client_message(self, script: RunningScript) -> None:
        try:
            received = ipc.receive(script.connection)
        except OSError:
            received = None
        if received is not None:
            self._signal(script, received[0]["signal"])
            return
        self._loop.forget(script.connection)
        self._end(script)

    def _signal(self, script: RunningScript, number: int) -> None:
        if script not in self._running:
            return
        if script.pid is None:  # the fork server still imports TensorFlow
            self._finish(script, {"exit": -number})
        else:
            _kill(script.pid, number)

    def _on_exit(self, script: RunningScript, status: int) -> None:
        if script.pid is not None:  # its group has the processes that the script left behind
            with _PEER_MAY_BE_GONE:
                os.killpg(script.pid, signal.SIGKILL)
        self._finish(script, {"exit": os.waitstatus_to_exitcode(status)})

    def _finish(self, script: RunningScript, message: ipc.Message) -> None:
        self._running.discard(script)
        with contextlib.suppress(KeyError):  # the client has ended, and the loop does not watch it any more
            self._loop.forget(script.connection)
        with _PEER_MAY_BE_GONE:
            ipc.send(script.connection, message)
        script.connection.close()
        os.close(script.events)


def _kill(leader: int, number: int) -> None:
    """Send a signal to a script's process group."""
    with _PEER_MAY_BE_GONE:
        try:
            os.killpg(leader, number)
        except ProcessLookupError:  # the process does not lead a group yet
            os.kill(leader, number)
