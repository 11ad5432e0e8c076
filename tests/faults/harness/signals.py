"""Signals to the processes of tasks."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Protocol

from harness.command import PATIENCE, Command, Ended


class Process(Protocol):
    """A process of a cluster."""

    def send(self, number: int) -> None:
        """Send the process a signal."""


class Environment(Protocol):
    """A cluster to break, on this machine or on Kubernetes."""

    def steps(self, moment: str, *, to_kill: str = "") -> Command:
        """Return a script that is at this moment; `to_kill` is the task that will be killed."""

    def process(self, task: str) -> Process:
        """Return the process of a task."""


def send_signal(task: str, number: int, moment: str) -> Callable[[Environment], Ended]:
    """Return the run of a row that sends a signal to a task's process at a moment of a script."""

    def run(environment: Environment) -> Ended:
        script = environment.steps(moment, to_kill=task if number == signal.SIGKILL else "")
        process = environment.process(task)
        script.now()
        process.send(number)
        script.go_on()
        try:
            return script.end(PATIENCE)
        finally:
            if number == signal.SIGSTOP:
                process.send(signal.SIGCONT)

    return run
