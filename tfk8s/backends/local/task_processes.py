"""The processes of a local cluster's tasks; those of servers, which the supervisor forks and restarts.

The supervisor has loaded TensorFlow's library, and a fork shares its pages: sixteen servers need less memory than two
processes that import TensorFlow. A task with modules to preload, or other settings, gets an interpreter of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tfk8s.backends import interpreter
from tfk8s.backends.history.lines import tail
from tfk8s.backends.local import capacity, state, task_log
from tfk8s.backends.local.loopback import sockets
from tfk8s.backends.local.loopback.start import listening
from tfk8s.core.backoff import Backoff
from tfk8s.core.events import RESTARTED
from tfk8s.core.output.reason import telling_line
from tfk8s.core.status import Phase
from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.task import ipc, server
from tfk8s.task.config import TaskConfig
from tfk8s.task.programs.import_variables import READ_LATER, read_at_import

_MAX_ERROR = 1 << 14  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """The settings of one task.

    Attributes:
        config: the ClusterSpec, and the task's place in it.
        environment: variables besides the supervisor's.
        preload: modules that the task imports before it starts its server.
        folder: where these modules are searched last.
        log: the file for the task's output.
        progress: the file for the progress of the task's program.
        python: the interpreter, for a task that needs its own.
        data: the folder for the state of tf.data's dispatcher, if the task is a part of tf.data's service.
        confined: whether the task's ports must be bound to the loopback device.
    """

    config: TaskConfig
    environment: Mapping[str, str]
    preload: Sequence[str]
    folder: str
    log: Path
    progress: Path
    python: str
    data: Path | None = None
    confined: bool = False

    @property
    def needs_interpreter(self) -> bool:
        """True if a fork of the supervisor is not enough."""
        return bool(self.data or self.preload or read_at_import(self.environment).keys() - READ_LATER)


class TaskProcess:
    """One task: its current process, and its status.

    Attributes:
        pid: the id of the process; None between two processes.
        phase, reason, since, restarts, exit_code, has_given_up: as in `core.status.TaskStatus`.
    """

    def __init__(self, loop: Loop, settings: TaskSettings, on_change: Callable[[TaskProcess], None]) -> None:
        self.settings = settings
        self.pid: int | None = None
        self.phase, self.reason, self.since = Phase.PENDING, "", time.time()
        self.restarts = 0
        self.exit_code: int | None = None
        self.has_given_up = False
        self._loop, self._on_change = loop, on_change
        self._oom_kills_before = 0  # on this machine, when the process started
        self._last_reason = ""  # the cause of the last end
        self._output: task_log.LogPipe | None = None  # of the last process

    @property
    def name(self) -> str:
        """The short name, `worker/1`."""
        return self.settings.config.name

    @property
    def job(self) -> str:
        """The name of the job."""
        return self.settings.config.job

    def stopped_reason(self) -> str:
        """Return a text if a signal has stopped the process, else ""."""
        if self.pid is None or not state.is_stopped(self.pid):
            return ""
        return f"stopped by a signal; kill -CONT {self.pid} continues it"

    def describe(self) -> dict[str, Any]:
        """Return the status as plain data, for a message."""
        phase, reason = self.phase, self.reason
        if stopped_reason := self.stopped_reason():
            phase, reason = Phase.UNKNOWN, stopped_reason
        return {
            "job": self.job, "index": self.settings.config.index, "pid": self.pid, "phase": phase, "reason": reason,
            "since": self.since, "restarts": self.restarts, "exit_code": self.exit_code,
            "has_given_up": self.has_given_up,
        }  # fmt: skip

    def enter(self, phase: Phase, reason: str) -> None:
        """Enter a phase now."""
        self.phase, self.reason, self.since = phase, reason, time.time()
        self._on_change(self)

    def _open_log(self) -> int:
        """Return the descriptor for the output of the process that starts now. The caller closes it."""
        self._oom_kills_before = capacity.count_oom_kills()
        self._output = task_log.LogPipe(self._loop, self.settings.log, self.restarts)
        return self._output.writer

    def _describe_exit(self, status: int) -> str:
        """Return the end of the last process as text, with the line of its output that says why."""
        if self._output is not None:
            self._output.drain()
        out_of_memory = capacity.count_oom_kills() > self._oom_kills_before
        return describe_exit(status, self.settings.log, out_of_memory=out_of_memory)


class ServerProcess(TaskProcess):
    """One task with a server, or of tf.data's service. The process restarts whenever it ends."""

    def __init__(
        self,
        loop: Loop,
        settings: TaskSettings,
        library: server.Library | None,
        on_change: Callable[[TaskProcess], None],
    ) -> None:
        super().__init__(loop, settings, on_change)
        self._library = library
        self._backoff = Backoff()
        self._started = 0.0
        self._stopping = False
        self._start_at_once = False
        self._trouble = ""  # the reason why the current process must not serve

    def start(self) -> None:
        """Start the process unless it runs. `phase` becomes READY when the server listens."""
        if self.pid is not None or self._stopping:
            return
        ready, notify = os.pipe()
        self._started = time.monotonic()
        log = self._open_log()
        if self._library is None or self.settings.needs_interpreter:
            self.pid = self._spawn(log, notify)
        else:
            self.pid = self._fork(self._library, log, notify)
        os.close(log)
        os.close(notify)
        self.has_given_up = False
        self.enter(Phase.STARTING, self._last_reason)
        self._loop.on_readable(ready, lambda: self._read_ready(ready))
        self._loop.on_end(self.pid, self._on_exit)

    def restart(self) -> None:
        """Restart the process at once."""
        self._backoff = Backoff()
        if self.pid is None:
            self.restarts += 1
            self._last_reason = RESTARTED
            self.start()
        else:
            self._start_at_once = True
            os.kill(self.pid, signal.SIGKILL)

    def stop(self, reason: str = "stopped") -> None:
        """End the process, without a restart."""
        self._stopping, self._last_reason = True, reason
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)

    def _read_ready(self, ready: int) -> None:
        is_ready = os.read(ready, 1)
        self._loop.forget(ready)
        os.close(ready)
        if is_ready and self.settings.confined and (trouble := sockets.trouble(self.settings.config.port)):
            self._trouble = trouble
            os.kill(self.pid or 0, signal.SIGKILL)
        elif is_ready:
            self.enter(Phase.READY, self._last_reason)

    def _on_exit(self, status: int) -> None:
        self.pid = None
        ended, self._trouble = self._trouble or self._describe_exit(status), ""
        if self._stopping:
            self.enter(Phase.FAILED, self._last_reason)
        elif self._start_at_once:
            self._start_at_once = False
            self._last_reason = RESTARTED
            self.enter(Phase.FAILED, self._last_reason)
            self._respawn()
        elif not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status) == server.BAD_INPUT:
            self.has_given_up = True
            self.enter(Phase.FAILED, ended)
        else:
            self._back_off(ended)

    def _back_off(self, reason: str) -> None:
        pause = self._backoff.pause(time.monotonic() - self._started)
        self._last_reason = reason
        self.enter(Phase.FAILED, f"{reason}; restarts in {pause:.0f} s" if pause else reason)
        self._loop.after(pause, self._respawn)

    def _respawn(self) -> None:
        if self.pid is None and not self._stopping:
            self.restarts += 1
            self.start()

    def _fork(self, library: server.Library, log: int, notify: int) -> int:
        with open(os.devnull) as null:
            return processes.run_in_fork(
                lambda: self._serve(library), [null.fileno(), log, log, notify], new_session=False
            )

    def _serve(self, library: server.Library) -> NoReturn:
        """Serve in a fork, which has `notify` as its descriptor 3, until the fork is killed."""
        config = self.settings.config
        try:
            os.environ.update(self.settings.environment)
            server.check_port(config)
            library.start(config)
            if self.settings.confined:  # `listening.hook_libraries` may not know this build of TensorFlow
                listening.bind_all()
            print(server.first_lines(config, library.version, library.folder, os.environ), flush=True)
            os.write(3, b"1")
            os.close(3)
            while True:
                signal.pause()
        except BaseException as error:
            processes.exit_child(f"error: {error}", 1)

    def _spawn(self, log: int, notify: int) -> int:
        config = self.settings.config
        options = [f"--cluster-spec={config.cluster_json}", f"--job-name={config.job}", f"--task-index={config.index}"]
        options += ["--elastic"] if config.elastic else []
        options += [f"--preload={module}" for module in self.settings.preload]
        options += [f"--preload-folder={self.settings.folder}"] if self.settings.folder else []
        data = self.settings.data
        module = ("tfk8s.task.data.service", str(data)) if data else ("tfk8s.task.server",)
        command = interpreter.command(self.settings.python, *module, *options, "--ready-fd=3")
        null = os.open(os.devnull, os.O_RDONLY)
        pid = processes.spawn(command, [null, log, log, notify], {**os.environ, **self.settings.environment})
        os.close(null)
        return pid


def describe_exit(status: int, log: Path, *, out_of_memory: bool = False) -> str:
    """Return a wait status as text, with the line of the log that says why if the process exited.

    Args:
        status: the status from waitpid(2).
        log: the file with the process' output.
        out_of_memory: whether the kernel has killed processes meanwhile because memory was short.
    """
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL and out_of_memory:
        return "killed by SIGKILL, probably by the kernel because memory was short"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    reason = ""
    with contextlib.suppress(OSError):
        lines = [task_log.parse(line) for line in tail(log, _MAX_ERROR).decode(errors="replace").splitlines()]
        reason = telling_line(line.text for line in lines if line.run == lines[-1].run)
    return f"exited with {code}: {reason}" if reason else f"exited with {code}"


def load_library(folder: Path) -> server.Library | None:
    """Return TensorFlow's library, or None if the servers have to import TensorFlow."""
    try:
        return server.Library(str(folder))
    except (OSError, AttributeError) as error:
        print(f"TensorFlow has no C library ({error}): each task imports TensorFlow", file=sys.stderr, flush=True)
        return None


def dial(connection: socket.socket, port: int) -> None:
    """Send a client a stream to a port in this network, or the reason why nobody answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as stream:
            stream.setblocking(True)  # the receiver shares the descriptor's flags
            ipc.send(connection, {}, [stream.fileno()])
    except OSError as error:
        ipc.send(connection, {"error": error.strerror or str(error)})
