"""The processes of session scripts in a local cluster: forks of the fork server, or interpreters of their own.

A client sends its standard streams, and the script uses them directly. The client forwards signals over its connection,
and the supervisor answers with the script's exit code. A script ends with its client.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfk8s.backends.local import interpreter, ipc, processes
from tfk8s.backends.local.event_loop import Loop
from tfk8s.backends.local.fork_client import ForkClient
from tfk8s.backends.local.task_processes import ServerProcess
from tfk8s.core.status import MAX_COMMAND_LENGTH
from tfk8s.sessions.task_events import TaskEvent

_READY_TIMEOUT = 3.0  # for tasks that restart while a script waits to start
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
        progress: the file for the script's progress.
        since: the time of the request, seconds since the epoch.
        pid: the script's process, which leads its own process group; None until the fork server has forked.
    """

    connection: socket.socket
    events: int
    fresh: bool
    command: str
    progress: Path
    since: float = field(default_factory=time.time)
    pid: int | None = None


class ScriptRunner:
    """Starts scripts, and sends their exit codes to their clients.

    Args:
        loop: the supervisor's.
        forks: starts scripts that need no interpreter of their own.
        not_ready: returns the tasks that a script with this request needs and that are not ready.
        on_start: called after each start.
    """

    def __init__(
        self,
        loop: Loop,
        forks: ForkClient,
        not_ready: Callable[[ipc.Message], list[ServerProcess]],
        on_start: Callable[[], None],
    ) -> None:
        self._loop, self._forks, self._not_ready, self._on_start = loop, forks, not_ready, on_start
        self._waiting: list[tuple[socket.socket, ipc.Message, list[int]]] = []
        self._running: set[RunningScript] = set()

    def describe(self) -> list[ipc.Message]:
        """Return the running scripts as plain data, the latest first."""
        running = sorted(self._running, key=lambda script: script.since, reverse=True)
        return [
            {
                "pid": script.pid, "since": script.since, "command": script.command, "progress": str(script.progress),
            }
            for script in running
        ]  # fmt: skip

    @property
    def are_used(self) -> bool:
        """True if a script runs or waits."""
        return bool(self._waiting or self._running)

    def run(self, connection: socket.socket, request: ipc.Message, streams: list[int]) -> None:
        """Start a script for a client as soon as every task is ready; refuse the script after `_READY_TIMEOUT`.

        Args:
            connection: the connection to the client, which this object closes.
            request: the request `run`.
            streams: the client's standard streams and its file for notes, which this object closes.
        """
        script = (connection, request, streams)
        self._waiting.append(script)
        self.start_waiting()
        if script in self._waiting:
            self._loop.after(_READY_TIMEOUT, lambda: self._refuse(script))

    def start_waiting(self) -> None:
        """Start the waiting scripts whose tasks are ready."""
        for script in [script for script in self._waiting if not self._not_ready(script[1])]:
            self._waiting.remove(script)
            self._start(*script)
            self._on_start()

    def _refuse(self, script: tuple[socket.socket, ipc.Message, list[int]]) -> None:
        if script not in self._waiting:
            return
        self._waiting.remove(script)
        connection, request, descriptors = script
        for descriptor in descriptors:
            os.close(descriptor)
        reason = "; ".join(
            f"{task.name} is {task.phase.lower()}{': ' + task.reason if task.reason else ''}"
            for task in self._not_ready(request)
        )
        with _PEER_MAY_BE_GONE:  # the client has given up
            ipc.send(connection, {"error": reason})
        connection.close()

    def _start(self, connection: socket.socket, request: ipc.Message, streams: Sequence[int]) -> None:
        read, write = os.pipe()
        fresh = request["fresh"] or not self._forks.equals_interpreter(request["python"], request["environment"])
        shown = shlex.join(request["arguments"])[:MAX_COMMAND_LENGTH]
        progress = Path(request["progress"])
        script = RunningScript(connection, write, fresh, shown, progress)
        self._running.add(script)
        self._loop.on_readable(connection, lambda: self._on_client_message(script))
        request = {**request, "arguments": [f"--events={len(streams)}", *request["arguments"]]}
        if fresh:
            script.pid = self._spawn(request, [*streams, read])
            self._loop.on_end(script.pid, lambda status: self.on_exit(script, status))
        else:
            self._forks.fork(_ForkedScript(self, script), request, [*streams, read])
        for descriptor in (*streams, read):
            os.close(descriptor)

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

    def _spawn(self, request: ipc.Message, descriptors: Sequence[int]) -> int:
        command = interpreter.command(request["python"], "tfk8s.sessions.runner", *request["arguments"])
        environment = {"PYTHONUNBUFFERED": "1", **request["environment"]}
        return processes.spawn(
            command, descriptors, environment, request["folder"], umask=request["umask"], new_session=True
        )

    def on_fork(self, script: RunningScript, pid: int) -> None:
        """Take the id of a script's process."""
        script.pid = pid
        if script not in self._running:  # the script was ended before it began
            processes.kill_group(pid, signal.SIGKILL)

    def on_lost(self, script: RunningScript, reason: str) -> None:
        """End a script whose fork server has ended."""
        if script in self._running:
            if script.pid is not None:
                processes.kill_group(script.pid, signal.SIGKILL)
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
            processes.kill_group(script.pid, number)

    def on_exit(self, script: RunningScript, status: int) -> None:
        """Take the wait status of a script's process."""
        if script not in self._running:
            return
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
        with contextlib.suppress(OSError):
            script.progress.unlink()


@dataclass(frozen=True, slots=True)
class _ForkedScript:
    runner: ScriptRunner
    script: RunningScript

    def on_fork(self, pid: int) -> None:
        self.runner.on_fork(self.script, pid)

    def on_exit(self, status: int) -> None:
        self.runner.on_exit(self.script, status)

    def on_lost(self, reason: str) -> None:
        self.runner.on_lost(self.script, reason)
