"""A cluster on this machine, to break."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import rows
from commands import PATIENCE, Command, cpu_ticks

from tfk8s import waiting
from tfk8s.backends.local import LocalBackend, state
from tfk8s.errors import NoSuchCluster
from tfk8s.spec import Task
from tfk8s.status import ClusterStatus, Phase

HERE = Path(__file__).parent
NAME = "faults"
JOB_FILE = f"apiVersion: tfk8s.dev/v1\nname: {NAME}\njobs: {{chief: 1, ps: 1, worker: 2}}\n"
SLOW = JOB_FILE.replace("ps: 1", "ps: {tasks: 1, preload: [tensorflow]}")
BUSY_TICKS = 20


class Local:
    """One cluster of four tasks that rows share while it is usable.

    Attributes:
        folder: for files of the rows.
        job_file: the cluster's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.backend = folder, LocalBackend()
        self.job_file = self.file("job.yaml", JOB_FILE)
        self._commands: list[Command] = []

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, *words: object, program: bool = False, **environment: str) -> Command:
        command = Command(*words, program=program, **environment)
        self._commands.append(command)
        return command

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
            up = self.start("up", "--local", self.job_file)
            assert up.end(PATIENCE).code == 0, up.err
        return NAME

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
        (where,) = (one.where for one in self.status().tasks if one.task == Task(job, int(index)))
        return int(where.removeprefix("pid "))

    def submit(self, script: str, *words: object, **environment: str) -> Command:
        return self.start("submit", "--local", self.cluster(), HERE / script, *words, **environment)

    def steps(self, moment: str) -> Command:
        """Return a script that is at this moment."""
        command = self.submit("steps.py", moment)
        before = cpu_ticks(self.pid("worker/1"))
        command.until_says(moment)
        if moment == "during":
            worker = self.pid("worker/1")
            waiting.wait_until(lambda: cpu_ticks(worker) > before + BUSY_TICKS, "the step to be under way", PATIENCE)
        return command

    def require_left(self, left: str) -> None:
        """Check what is left behind."""
        if left == rows.USABLE:
            waiting.wait_until(self._is_usable, lambda: f"the cluster to be usable: {self.status()}", PATIENCE)
        elif left == rows.NOTHING:
            assert state.folder(NAME).read() is None
            assert not list(state.folder(NAME).path.glob("*"))
        elif left == rows.LOST:
            assert self.status().phase is Phase.FAILED
            assert self.status().reason
            up = self.start("up", "--local", self.job_file)
            assert up.end(PATIENCE).code == 0, up.err
        elif left == rows.STARTED:
            up = self.start("up", "--local", self.folder / "slow.yaml")
            assert up.end(PATIENCE).code == 0, up.err
            self.remove()
        else:
            raise AssertionError(left)

    def _is_usable(self) -> bool:
        status = self.status()
        return status.phase is Phase.READY and not status.scripts

    def close(self) -> None:
        for command in self._commands:
            command.close()
        self._commands.clear()
