"""One program of a local cluster: a fork of the fork server, or an interpreter or a command of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tfk8s.backends import interpreter
from tfk8s.backends.local.task_processes import TaskProcess, TaskSettings
from tfk8s.core import programs
from tfk8s.core.environment import PROGRAM_DEFAULTS
from tfk8s.core.programs import Program
from tfk8s.core.status import Phase
from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.sessions.forks.fork_client import ForkClient
from tfk8s.task import ipc
from tfk8s.task.programs import command
from tfk8s.task.programs.import_variables import READ_LATER
from tfk8s.task.programs.unreachable import Complaints

PROGRAM_RUNNER = "tfk8s.task.programs.runner"
_SEEN_GPUS = "tfk8s.task.programs.seen_gpus"  # becomes a command
_GROUP_INTERVAL = 0.05


class ProgramProcess(TaskProcess):
    """One task with a program.

    Args:
        settings: of the task.
        forks: starts scripts.
        on_change: called after each change of the phase.

    Attributes:
        on_end: called with the exit code and its text when the program has ended.
        is_running: True from `start` until the program has ended.
    """

    def __init__(
        self,
        loop: Loop,
        settings: TaskSettings,
        program: Program,
        forks: ForkClient,
        on_change: Callable[[TaskProcess], None],
    ) -> None:
        super().__init__(loop, settings, on_change)
        self.on_end: Callable[[ProgramProcess, int, str], None] = lambda *_: None
        self.is_running = False
        self._program = Program(tuple(programs.expand(program.words, settings.environment)), program.folder)
        self._forks = forks
        self._is_ending, self._kill_at = False, 0.0

    def start(self, reason: str) -> None:
        """Start the program.

        Args:
            reason: why the program runs again; "" at its first start.
        """
        self._last_reason, self.exit_code = reason, None
        self.is_running, self._is_ending = True, False
        self.enter(Phase.STARTING, reason)
        streams: list[int] = []
        try:
            streams.append(os.open(os.devnull, os.O_RDONLY))
            streams.append(log := self._open_log())
            self._begin([*streams, log])
        except OSError as error:  # such as without a free descriptor
            text = f"can't start: {error}"
            self._loop.after(0, lambda: self._finish(1, text))
        finally:
            processes.close(streams)

    def _begin(self, streams: Sequence[int]) -> None:
        environment = self._environment()
        self.settings.progress.unlink(missing_ok=True)
        if self._can_fork(environment):
            self._forks.fork(self, PROGRAM_RUNNER, self._request(environment), streams)
            return
        if not self._program.python_arguments and self._output is not None:
            self._output.explain = Complaints(environment).explain
        pid = processes.spawn(self._command(), streams, environment, self._program.folder, new_session=True)
        try:
            self._loop.on_end(pid, self.on_exit)
        except OSError:  # nothing would see its end
            processes.kill_group(pid, signal.SIGKILL)
            raise
        self.on_fork(pid)

    def end(self) -> None:
        """End the program: SIGTERM, and SIGKILL after its grace. A stopped program gets SIGKILL at once."""
        pid, was_ending, self._is_ending = self.pid, self._is_ending, True
        if pid is None or was_ending:
            return
        is_stopped = bool(self.stopped_reason())
        processes.kill_group(pid, signal.SIGKILL if is_stopped else signal.SIGTERM)
        grace = programs.grace(self.settings.environment)
        self._kill_at = time.monotonic() + grace
        self._loop.after(grace, lambda: self._kill(pid))

    def succeed(self) -> None:
        """Show the success of the program. The cause of its last restart has no consequence any more."""
        self.exit_code = 0
        self.enter(Phase.SUCCEEDED, "")

    def note(self, text: str) -> None:
        """Write a line of tfk8s into the log of a program that runs."""
        if self.is_running and self._output is not None:
            self._output.note(text)

    def kill(self) -> None:
        """Kill the program."""
        if self.pid is not None:
            self._kill(self.pid)

    def _kill(self, pid: int) -> None:
        if self.pid == pid:
            processes.kill_group(pid, signal.SIGKILL)

    # ---- the process, as the fork server or the loop reports it ----

    def on_fork(self, pid: int) -> None:
        """Take the id of the process."""
        self.pid = pid
        if self._is_ending:  # the program was ended before it began
            self._kill(pid)
        self.enter(Phase.RUNNING, self._last_reason)

    def on_exit(self, status: int) -> None:
        """Take the wait status of the process. Its group has the processes that the program left behind."""
        if self.pid is not None:
            may_save = programs.may_save(self._is_ending, self._kill_at, time.monotonic())
            if may_save and processes.group_exists(self.pid):
                self._loop.after(_GROUP_INTERVAL, lambda: self.on_exit(status))
                return
            self._kill(self.pid)
        code = programs.exit_code(os.waitstatus_to_exitcode(status))
        reasons = {programs.PEER_LOST: programs.LOST_TASK, programs.SAVED: programs.WANTS_RESTART}
        self._finish(code, reasons.get(code) or self._describe_exit(status))

    def on_lost(self, reason: str) -> None:
        """Take the reason why the fork server has ended, which ends its forks with SIGKILL."""
        self.kill()
        self._finish(128 + signal.SIGKILL, reason)

    def _finish(self, code: int, text: str) -> None:
        self.pid, self.is_running = None, False
        self.on_end(self, code, text)

    # ---- the start ----

    def _can_fork(self, environment: dict[str, str]) -> bool:
        """Return whether a fork equals a new interpreter for this program."""
        python = self.settings.python
        return self._program.is_script and self._forks.equals_interpreter(python, environment, READ_LATER)

    def _request(self, environment: dict[str, str]) -> ipc.Message:
        return {
            "arguments": list(self._program.words), "folder": self._program.folder,
            "umask": processes.umask(), "environment": environment,
        }  # fmt: skip

    def _command(self) -> Sequence[str]:
        program, python = self._program, self.settings.python
        if program.is_script:
            return interpreter.command(python, PROGRAM_RUNNER, *program.words)
        if program.python_arguments:
            return command.through_runner(program)
        if "TFK8S_GPUS" in self.settings.environment:
            return interpreter.command(python, _SEEN_GPUS, *program.words)
        return program.words

    def _environment(self) -> dict[str, str]:
        """Return the whole environment. `python3` is the interpreter with TensorFlow."""
        path = f"{Path(self.settings.python).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        own = {"PATH": path, "PYTHONUNBUFFERED": "1"} if not self._program.is_script else {}
        own["TFK8S_PROGRESS"] = str(self.settings.progress)
        return {**PROGRAM_DEFAULTS, **os.environ, **own, **self.settings.environment}
