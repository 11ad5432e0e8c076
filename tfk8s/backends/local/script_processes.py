"""The processes of session scripts in a local cluster: forks of the fork server, or interpreters of their own."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfk8s.backends import interpreter
from tfk8s.backends.local.supervision.requests import RunScript
from tfk8s.backends.local.task_processes import ServerProcess
from tfk8s.core.status import MAX_COMMAND_LENGTH
from tfk8s.sessions.forks import forked_scripts, processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.sessions.forks.fork_client import ForkClient
from tfk8s.sessions.forks.forked_scripts import PEER_MAY_BE_GONE, ForkedScripts, RunningScript, received_signal
from tfk8s.sessions.task_events import TaskEvent
from tfk8s.task import ipc

RUNNER = "tfk8s.sessions.runner"
_CANT_START = "the script can't start: {}"
_READY_TIMEOUT = 3.0  # for tasks that restart while a script waits to start


@dataclass(eq=False, kw_only=True)
class LocalScript(RunningScript):
    """A script in a local cluster.

    Attributes:
        events: a descriptor, from which the script's runner reads the lost tasks.
    """

    events: int


@dataclass(frozen=True, eq=False, slots=True)
class _Waiting:
    """A script that waits for its tasks."""

    connection: socket.socket
    request: RunScript
    streams: list[int]


class ScriptRunner(ForkedScripts[LocalScript]):
    """Starts scripts, and sends their exit codes to their clients.

    Args:
        forks: starts scripts that need no interpreter of their own.
        not_ready: returns the tasks that a script with this request needs and that are not ready.
        on_start: called after each start.
        grace: the seconds that scripts have after SIGTERM; None for the defaults.
        on_end: called after each end with the command, the file of its progress, and the exit code; None without one.
    """

    def __init__(
        self,
        loop: Loop,
        forks: ForkClient,
        not_ready: Callable[[RunScript], list[ServerProcess]],
        on_start: Callable[[], None],
        grace: float | None,
        on_end: Callable[[str, Path, int | None], None],
    ) -> None:
        super().__init__(loop, forks, grace)
        self._not_ready, self._on_start, self._on_end = not_ready, on_start, on_end
        self._waiting: list[_Waiting] = []

    @property
    def are_used(self) -> bool:
        """True if a script runs or waits."""
        return bool(self._waiting or self._running)

    def run(self, connection: socket.socket, request: RunScript, streams: list[int]) -> None:
        """Start a script for a client as soon as every task is ready; refuse the script after `_READY_TIMEOUT`.

        Args:
            connection: the connection to the client, which this object closes.
            streams: the client's standard streams and its file for notes, which this object closes.
        """
        script = _Waiting(connection, request, streams)
        self._waiting.append(script)
        self._loop.on_readable(connection, lambda: self._on_early_message(script))
        self.start_waiting()
        if script in self._waiting:
            self._loop.after(_READY_TIMEOUT, lambda: self._refuse(script))

    def start_waiting(self) -> None:
        """Start the waiting scripts whose tasks are ready. A script that can't start does not hold up the others."""
        for script in [script for script in self._waiting if not self._not_ready(script.request)]:
            self._forget(script)
            try:
                events = os.pipe()
            except OSError as error:
                self._answer(script, {"error": _CANT_START.format(error)})
                continue
            self._start(script, events)
            self._on_start()

    def _on_early_message(self, script: _Waiting) -> None:
        """End a script that has not begun: its client has sent a signal, or is gone."""
        number = received_signal(script.connection)
        self._forget(script)
        self._answer(script, {"exit": -(number or signal.SIGTERM)})

    def _refuse(self, script: _Waiting) -> None:
        if script not in self._waiting:
            return
        self._forget(script)
        reason = "; ".join(
            f"{task.name} is {task.phase.lower()}{': ' + task.reason if task.reason else ''}"
            for task in self._not_ready(script.request)
        )
        self._answer(script, {"error": reason})

    def _forget(self, script: _Waiting) -> None:
        self._waiting.remove(script)
        self._loop.forget(script.connection)

    def _answer(self, script: _Waiting, message: ipc.Message) -> None:
        """Send the only message to the client of a script that does not run."""
        processes.close(script.streams)
        with PEER_MAY_BE_GONE:  # the client has given up
            ipc.send(script.connection, message)
        script.connection.close()

    def _start(self, waiting: _Waiting, events: tuple[int, int]) -> None:
        request, streams, (read, write) = waiting.request, waiting.streams, events
        fresh = request.fresh or not self._forks.equals_interpreter(request.python, request.environment)
        script = LocalScript(
            connection=waiting.connection, events=write, progress=Path(request.progress),
            command=forked_scripts.shown(request.arguments, MAX_COMMAND_LENGTH),
        )  # fmt: skip
        arguments = [f"--events={len(streams)}", *request.arguments]
        self.add(script)
        try:
            if fresh:
                script.pid = self._spawn(request, arguments, [*streams, read])
                self._loop.on_end(script.pid, lambda status: self.on_exit(script, status))
            else:
                self.fork(script, RUNNER, {**dataclasses.asdict(request), "arguments": arguments}, [*streams, read])
        except Exception as error:
            if script.pid is not None:  # nothing would see its end
                processes.kill_group(script.pid, signal.SIGKILL)
            self.finish(script, {"error": _CANT_START.format(error)})
        finally:
            processes.close((*streams, read))

    def send_event(self, event: TaskEvent) -> None:
        """Send an event to the running scripts."""
        for script in self._running:
            with PEER_MAY_BE_GONE:
                os.write(script.events, event.to_line())

    def stop(self, reason: str) -> None:
        """End all scripts, also those that wait, and tell their clients what became of the cluster."""
        for waiting in list(self._waiting):
            self._forget(waiting)
            self._answer(waiting, {"error": f"the cluster {reason}"})
        for script in list(self._running):
            with PEER_MAY_BE_GONE:
                ipc.send(script.connection, {"cluster": reason})
            self.end(script)

    def kill(self) -> None:
        """Kill the scripts that still run."""
        for script in list(self._running):
            self._signal(script, signal.SIGKILL)

    def finish(self, script: LocalScript, message: ipc.Message) -> None:
        """Send the last message to a script's client, and close the script's events."""
        self._on_end(script.command, script.progress, message.get("exit"))
        super().finish(script, message)
        os.close(script.events)

    def _spawn(self, request: RunScript, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
        command = interpreter.command(request.python, RUNNER, *arguments)
        environment = {"PYTHONUNBUFFERED": "1", **request.environment}
        return processes.spawn(command, descriptors, environment, request.folder, umask=request.umask, new_session=True)
