"""The tasks of a local cluster: forked from a process that has TensorFlow's library loaded, and started again.

A fork shares the library's pages with its parent, so that sixteen servers take less memory than two processes that
import TensorFlow. A task that needs modules imported first, or other settings than the library was loaded with,
gets a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfk8s.backends.local import capacity, interpreter, network_namespace, processes, state
from tfk8s.backends.local.event_loop import Loop
from tfk8s.core.status import Phase
from tfk8s.task import server
from tfk8s.task.config import TaskConfig

_STEADY = 60.0  # seconds after which a task that ends is started again at once
_MAX_DELAY = 30.0

# Read when a server makes its devices, not when the library is loaded.
_READ_AT_START = {"CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """What one task needs to start.

    Attributes:
        member: what it is told of the cluster.
        environment: variables besides the supervisor's.
        preload: modules to import first.
        log: the file that it writes to.
        python: the interpreter, where it gets one of its own.
    """

    member: TaskConfig
    environment: Mapping[str, str]
    preload: Sequence[str]
    log: Path
    python: str

    @property
    def needs_interpreter(self) -> bool:
        """Whether a fork of the supervisor can't do."""
        return bool(self.preload or interpreter.read_at_import(self.environment).keys() - _READ_AT_START)


class TaskProcess:
    """One task: its process now, and how it has fared.

    Attributes:
        pid: of its process; None between two of them.
        phase, reason, since, restarts: as in `status.TaskStatus`.
    """

    def __init__(
        self, loop: Loop, settings: TaskSettings, library: server.Library | None, changed: Callable[[TaskProcess], None]
    ) -> None:
        self.settings = settings
        self.pid: int | None = None
        self.phase, self.reason, self.since = Phase.PENDING, "", time.time()
        self.restarts = 0
        self._loop, self._library, self._changed = loop, library, changed
        self._delay = 0.0
        self._started = 0.0
        self._killed_before = 0  # for want of memory, by the kernel, before it started
        self._cause = ""  # of its last end
        self._stopping = False
        self._start_at_once = False

    @property
    def name(self) -> str:
        """Its short name, `worker/1`."""
        return self.settings.member.name

    def start(self) -> None:
        """Start its process; `phase` says later whether the server answers."""
        if self.pid is not None or self._stopping:
            return
        ready, told = os.pipe()
        self._started = time.monotonic()
        self._killed_before = capacity.killed_for_memory()
        if self._library is None or self.settings.needs_interpreter:
            self.pid = self._spawn(told)
        else:
            self.pid = self._fork(self._library, told)
        os.close(told)
        self._enter(Phase.STARTING, self._cause)
        self._loop.on_readable(ready, lambda: self._told(ready))
        self._loop.on_end(self.pid, self._ended)

    def restart(self) -> None:
        """Start it anew, at once."""
        self._delay = 0.0
        if self.pid is None:
            self.restarts += 1
            self._cause = "restarted on request"
            self.start()
        else:
            self._start_at_once = True
            os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End its process for good."""
        self._stopping = True
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)

    def stopped(self) -> str:
        """Return in words that its process is stopped by a signal; "" where it isn't."""
        if self.pid is None or not state.is_stopped(self.pid):
            return ""
        return f"stopped by a signal; kill -CONT {self.pid} continues it"

    def observed(self) -> dict[str, Any]:
        """Return what is known of it, for a message."""
        phase, reason = self.phase, self.reason
        if stopped := self.stopped():
            phase, reason = Phase.UNKNOWN, stopped
        return {
            "job": self.settings.member.job, "index": self.settings.member.index, "pid": self.pid,
            "phase": phase, "reason": reason, "since": self.since, "restarts": self.restarts,
        }  # fmt: skip

    def _enter(self, phase: Phase, reason: str) -> None:
        self.phase, self.reason, self.since = phase, reason, time.time()
        self._changed(self)

    def _told(self, ready: int) -> None:
        answered = os.read(ready, 1)
        self._loop.forget(ready)
        os.close(ready)
        if answered:
            self._enter(Phase.READY, self._cause)

    def _ended(self, status: int) -> None:
        self.pid = None
        if self._stopping:
            self._enter(Phase.FAILED, "stopped")
        elif self._start_at_once:
            self._start_at_once = False
            self._cause = "restarted on request"
            self._enter(Phase.FAILED, self._cause)
            self._again()
        else:
            for_memory = capacity.killed_for_memory() > self._killed_before
            self._failed(how_it_ended(status, self.settings.log, for_memory=for_memory))

    def _failed(self, reason: str) -> None:
        if time.monotonic() - self._started > _STEADY:
            self._delay = 0.0
        self._cause = reason
        self._enter(Phase.FAILED, f"{reason}; starts again in {self._delay:.0f} s" if self._delay else reason)
        self._loop.after(self._delay, self._again)
        self._delay = min(max(1.0, 2 * self._delay), _MAX_DELAY)

    def _again(self) -> None:
        if self.pid is None and not self._stopping:
            self.restarts += 1
            self.start()

    def _fork(self, library: server.Library, told: int) -> int:
        parent, member = os.getpid(), self.settings.member
        log = self._open_log()
        pid = os.fork()
        if pid:
            os.close(log)
            return pid
        try:
            network_namespace.die_with_parent(parent)
            processes.take_descriptors([os.open(os.devnull, os.O_RDONLY), log, log, told])
            processes.reset_signals()
            os.environ.update(self.settings.environment)
            server.check_port(member)
            library.start(member)
            with contextlib.suppress(OSError):  # no room for its log
                print(server.first_line(member, library.version), flush=True)
            os.write(3, b"1")
            os.close(3)
            while True:
                signal.pause()
        except BaseException as error:
            processes.leave(f"error: {error}", 1)

    def _spawn(self, told: int) -> int:
        member = self.settings.member
        options = [f"--cluster-spec={member.cluster_json}", f"--job-name={member.job}", f"--task-index={member.index}"]
        options += [f"--preload={module}" for module in self.settings.preload]
        command = interpreter.command(self.settings.python, "tfk8s.task.server", *options, "--ready-fd=3")
        log, nothing = self._open_log(), os.open(os.devnull, os.O_RDONLY)
        pid = processes.spawn(command, [nothing, log, log, told], {**os.environ, **self.settings.environment})
        os.close(log)
        os.close(nothing)
        return pid

    def _open_log(self) -> int:
        try:
            return os.open(self.settings.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError:  # no room for it
            return os.open(os.devnull, os.O_WRONLY)


def how_it_ended(status: int, log: Path, *, for_memory: bool = False) -> str:
    """Return a wait status in words, with what the process wrote last where it ended by itself.

    Args:
        status: as waitpid(2) gives it.
        log: what the process wrote.
        for_memory: the kernel has killed processes for want of memory meanwhile, of which it may be one.
    """
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL and for_memory:
        return "killed by SIGKILL, it seems by the kernel for want of memory"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    last = ""
    with contextlib.suppress(OSError), log.open("rb") as lines:
        lines.seek(max(0, log.stat().st_size - 4096))
        last = lines.read().decode(errors="replace").strip().rpartition("\n")[2]
    return f"exited with {code}: {last}" if last else f"exited with {code}"
