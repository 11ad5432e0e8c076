"""Session scripts in a local cluster: started by the fork server or afresh, and their conversation with a client.

The client sends its standard streams along; the script writes to them directly. Over the connection the supervisor
tells how the script ended, and the client passes on signals. A client that goes away takes its script with it.
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

_GRACE = 2.0  # seconds between SIGTERM and SIGKILL for a script whose client is gone

# It is told of elsewhere: a process by its end, a client by the end of its connection.
_OTHER_SIDE_MAY_BE_GONE = contextlib.suppress(OSError)

# The signals that a client sends for its first, second, … Ctrl-C.
ESCALATION = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


@dataclass(eq=False)
class RunningScript:
    """One script and the client that asked for it.

    Attributes:
        connection: to the client.
        news: where the script's runner hears of lost tasks; None where it can't.
        pid: the script's process, which leads a process group of its own; None until it is known.
        fresh: the script has an interpreter of its own, and is no fork of the fork server.
        command: what it is, for people.
        since: when it was asked for, seconds since the epoch.
    """

    connection: socket.socket
    news: int
    fresh: bool
    command: str
    since: float = field(default_factory=time.time)
    pid: int | None = None


class ScriptRunner:
    """Starts scripts and tells their clients how they end."""

    def __init__(self, loop: Loop, python: str, environment: dict[str, str], log: Path) -> None:
        self._loop, self._python, self._environment, self._log = loop, python, environment, log
        self._server: socket.socket | None = None
        self._server_pid = 0
        self._unborn: deque[RunningScript] = deque()  # asked of the fork server, not yet forked
        self._running: set[RunningScript] = set()

    def observed(self) -> list[ipc.Message]:
        """Return what runs now, the latest first."""
        running = sorted(self._running, key=lambda one: one.since, reverse=True)
        return [{"pid": one.pid, "since": one.since, "command": one.command} for one in running]

    def prepare(self) -> None:
        """Start the fork server, which then imports TensorFlow for the scripts to come."""
        if self._server is not None:
            return
        self._server, theirs = socket.socketpair()
        with self._log.open("ab") as log, open(os.devnull) as nothing:
            command = interpreter.command(self._python, "tfk8s.backends.local.fork_server")
            descriptors = [nothing.fileno(), log.fileno(), log.fileno(), theirs.fileno()]
            self._server_pid = processes.spawn(command, descriptors, self._environment)
        theirs.close()
        self._loop.on_readable(self._server, self._server_says)
        self._loop.on_end(self._server_pid, lambda _: None)

    def run(self, connection: socket.socket, request: ipc.Message, streams: Sequence[int]) -> None:
        """Start a script for a client; takes over the connection and the streams."""
        read, write = os.pipe()
        fresh = request["fresh"] or not self._fits(request)
        shown = shlex.join(request["arguments"])[:MAX_COMMAND_LENGTH]
        conversation = RunningScript(connection, write, fresh, shown)
        self._running.add(conversation)
        self._loop.on_readable(connection, lambda: self._client_says(conversation))
        request = {**request, "arguments": ["--events=3", *request["arguments"]]}
        if fresh:
            conversation.pid = self._spawn(request, [*streams, read])
            self._loop.on_end(conversation.pid, lambda status: self._ended(conversation, status))
        else:
            self._unborn.append(conversation)
            self._ask_server(request, [*streams, read])
        for descriptor in (*streams, read):
            os.close(descriptor)

    def _ask_server(self, request: ipc.Message, descriptors: Sequence[int]) -> None:
        """Have the fork server run a script; it may be busy importing TensorFlow for seconds yet.

        The request goes in a file of its own, so that the socket's buffer has room for hundreds of them: the supervisor
        must not wait for anybody.
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
                self._server_ended()

    def tell_lost(self, task: str, reason: str) -> None:
        """Tell the running scripts that a task was lost."""
        for conversation in self._running:
            news = json.dumps({"task": task, "reason": reason}) + "\n"
            with _OTHER_SIDE_MAY_BE_GONE:
                os.write(conversation.news, news.encode())

    def stop(self) -> None:
        """End all scripts."""
        for conversation in list(self._running):
            self._signal(conversation, signal.SIGTERM)

    def _fits(self, request: ipc.Message) -> bool:
        """Return whether a fork of the fork server is what the request's own interpreter would be."""
        same = interpreter.read_at_import(request["environment"]) == interpreter.read_at_import(self._environment)
        return same and request["python"] == self._python

    def _spawn(self, request: ipc.Message, descriptors: Sequence[int]) -> int:
        command = interpreter.command(request["python"], "tfk8s.sessions.runner", *request["arguments"])
        environment = {"PYTHONUNBUFFERED": "1", **request["environment"]}
        return processes.spawn(
            command, descriptors, environment, request["folder"], umask=request["umask"], new_session=True
        )

    def _server_says(self) -> None:
        assert self._server is not None
        try:
            received = ipc.receive(self._server)
        except OSError:  # it was killed with a request unread
            received = None
        if received is None:
            self._server_ended()
        elif "pid" in received[0]:
            conversation = self._unborn.popleft()
            conversation.pid = received[0]["pid"]
            if conversation not in self._running:  # it was ended before it began
                _kill(conversation.pid, signal.SIGKILL)
        else:
            ended = [one for one in self._running if one.pid == received[0]["ended"]]
            for conversation in ended:
                self._ended(conversation, received[0]["status"])

    def _server_ended(self) -> None:
        """Tell all clients whose script went with the fork server; the next script gets a new one."""
        assert self._server is not None
        self._loop.forget(self._server)
        self._server.close()
        self._server = None
        self._unborn.clear()
        reason = f"the process that runs scripts ended; its last words are in {self._log}"
        for conversation in [one for one in self._running if not one.fresh]:
            if conversation.pid is not None:
                _kill(conversation.pid, signal.SIGKILL)
            self._finish(conversation, {"error": reason})

    def _client_says(self, conversation: RunningScript) -> None:
        try:
            received = ipc.receive(conversation.connection)
        except OSError:
            received = None
        if received is not None:
            self._signal(conversation, received[0]["signal"])
            return
        self._loop.forget(conversation.connection)
        self._signal(conversation, signal.SIGTERM)
        self._loop.after(_GRACE, lambda: self._signal(conversation, signal.SIGKILL))

    def _signal(self, conversation: RunningScript, number: int) -> None:
        if conversation not in self._running:
            return
        if conversation.pid is None:  # nor need anybody wait until the fork server has imported TensorFlow
            self._finish(conversation, {"exit": -number})
        else:
            _kill(conversation.pid, number)

    def _ended(self, conversation: RunningScript, status: int) -> None:
        if conversation.pid is not None:  # what it started and left behind, in its process group
            with _OTHER_SIDE_MAY_BE_GONE:
                os.killpg(conversation.pid, signal.SIGKILL)
        self._finish(conversation, {"exit": os.waitstatus_to_exitcode(status)})

    def _finish(self, conversation: RunningScript, message: ipc.Message) -> None:
        self._running.discard(conversation)
        with contextlib.suppress(KeyError):  # it hung up, and is forgotten
            self._loop.forget(conversation.connection)
        with _OTHER_SIDE_MAY_BE_GONE:
            ipc.send(conversation.connection, message)
        conversation.connection.close()
        os.close(conversation.news)


def _kill(leader: int, number: int) -> None:
    """Send a signal to a script's process group."""
    with _OTHER_SIDE_MAY_BE_GONE:
        try:
            os.killpg(leader, number)
        except ProcessLookupError:  # it does not lead a group yet
            os.kill(leader, number)
