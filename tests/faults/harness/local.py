"""A cluster on this machine to break."""

from __future__ import annotations

import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import row
from harness.command import PATIENCE, Command, cpu_ticks

from tfk8s import polling
from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.errors import NoSuchCluster

SCRIPTS = Path(__file__).parents[1] / "scripts"
NAME = "faults"
JOB_FILE = f"apiVersion: tfk8s.dev/v1\nname: {NAME}\njobs: {{chief: 1, ps: 1, worker: 2}}\n"
BUSY_TICKS = 20

# As `sitecustomize`, the interpreter of a task runs it first.
_GATE = """
import pathlib, time
while not pathlib.Path({gate!r}).exists():
    time.sleep(0.05)
"""


@dataclass(frozen=True)
class Process:
    """A process of this machine."""

    id: int

    def send(self, number: int) -> None:
        """Send the process a signal."""
        os.kill(self.id, number)


class LocalEnvironment:
    """One cluster of four tasks that rows share while it is usable.

    Attributes:
        folder: for files of the rows.
        job_file: the cluster's; its ps starts only while the gate is open, as it is but for what `close_gate` does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.backend = folder, LocalBackend()
        self._gate = folder / "gate"
        (folder / "slow").mkdir()
        self.file("slow/sitecustomize.py", _GATE.format(gate=str(self._gate)))
        # A variable that TensorFlow reads when it is loaded: so the task gets an interpreter of its own.
        env = f"{{TF_CPP_MIN_LOG_LEVEL: '1', PYTHONPATH: {folder / 'slow'}}}"
        self.job_file = self.file("job.yaml", JOB_FILE.replace("ps: 1", f"ps: {{tasks: 1, env: {env}}}"))
        self.open_gate()
        self._commands: list[Command] = []
        self._connections: list[socket.socket] = []

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, *words: object, program: bool = False, terminal: bool = False, **variables: str) -> Command:
        command = Command(*words, program=program, terminal=terminal, **variables)
        self._commands.append(command)
        return command

    def keep(self, connection: socket.socket) -> None:
        """Keep a connection open until the end of the row."""
        self._connections.append(connection)

    def status(self) -> ClusterStatus:
        return self.backend.observe(NAME)

    def cluster(self) -> str:
        """Return the name of a cluster that is ready."""
        try:
            ready = self.status().phase is Phase.READY
        except NoSuchCluster:
            ready = False
        if not ready:
            self.remove()
            self.up()
        return NAME

    def up(self) -> None:
        up = self.start("up", "--local", self.job_file)
        assert up.end(PATIENCE).code == 0, up.err

    def open_gate(self) -> None:
        self._gate.touch()

    def close_gate(self) -> None:
        self._gate.unlink(missing_ok=True)

    def remove(self) -> None:
        if (supervisor := state.folder(NAME).supervisor()) is not None:
            os.kill(supervisor, signal.SIGCONT)
        try:
            self.backend.delete(NAME)
        except NoSuchCluster:
            return

    def pid(self, task: str) -> int:
        """Return the process of a task, or of the supervisor."""
        if task == "supervisor":
            found = state.folder(NAME).supervisor()
            assert found is not None
            return found
        job, _, index = task.partition("/")
        (where,) = (one.runs_on for one in self.status().tasks if one.task == Task(job, int(index)))
        return int(where.removeprefix("pid "))

    def submit(
        self, script: str, *words: object, to_kill: str = "", terminal: bool = False, **variables: str
    ) -> Command:
        del to_kill  # a task may be killed twice
        command = ("submit", "--local", self.cluster(), SCRIPTS / script, *words)
        return self.start(*command, terminal=terminal, **variables)

    def process(self, task: str) -> Process:
        return Process(self.pid(task))

    def steps(self, moment: str, *, to_kill: str = "", terminal: bool = False) -> Command:
        """Return a script that is at this moment."""
        del to_kill  # a task may be killed twice
        command = self.submit("steps.py", moment, terminal=terminal)
        before = cpu_ticks(self.pid("worker/1"))
        command.until_says(moment)
        if moment == "during":
            self._until_busy(before)
        return command

    def join(self, *, to_kill: str = "") -> Command:
        """Return a script that joins the server of ps/0."""
        del to_kill
        command = self.submit("join.py")
        command.until_says("joins")
        return command

    def notebook(self, where: str = "") -> Command:
        """Return a user's program that is in a step; `where` is an address, or ""."""
        self.cluster()
        before = cpu_ticks(self.pid("worker/1"))
        command = self.start(sys.executable, SCRIPTS / "notebook.py", where, program=True)
        command.until_says("during")
        self._until_busy(before)
        return command

    def _until_busy(self, before: int) -> None:
        worker = self.pid("worker/1")
        polling.wait_until(lambda: cpu_ticks(worker) > before + BUSY_TICKS, "the step to be under way", PATIENCE)

    def require_left(self, left: str) -> None:
        """Check what is left behind."""
        if left == row.USABLE:
            polling.wait_until(self._is_usable, lambda: f"the cluster to be usable: {self.status()}", PATIENCE)
        elif left == row.NOTHING:
            assert state.folder(NAME).read() is None
            assert not list(state.folder(NAME).path.glob("*"))
        elif left == row.LOST:
            polling.wait_until(lambda: bool(self.status().reason), "the supervisor's end", PATIENCE)
            assert self.status().phase is Phase.FAILED
            self.up()
        elif left == row.STARTED:
            self.open_gate()
            self.up()
        else:
            raise AssertionError(left)

    def _is_usable(self) -> bool:
        status = self.status()
        return status.phase is Phase.READY and not status.scripts

    def close(self) -> None:
        for command in self._commands:
            command.close()
        for connection in self._connections:
            connection.close()
        self._commands.clear()
        self._connections.clear()
        self.open_gate()
