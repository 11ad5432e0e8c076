"""Rows about session scripts, on this machine and on Kubernetes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Protocol

from harness import signals
from harness.command import PATIENCE, Command, Ended
from harness.row import NOTHING, Row

JOINING = "while a script joins the server of ps/0"


class Environment(Protocol):
    """A cluster to break, on this machine or on Kubernetes."""

    def submit(self, script: str, *words: object, **variables: str) -> Command:
        """Return a script of tests/faults/scripts that runs."""

    def join(self, *, to_kill: str = "") -> Command:
        """Return a script that joins the server of ps/0; `to_kill` is the task that will be killed."""

    def process(self, task: str) -> signals.Process:
        """Return the process of a task."""

    def remove(self) -> None:
        """Remove the cluster."""


def script(name: str, *words: str, **variables: str) -> Callable[[Environment], Ended]:
    """Run a script whose fault begins with a step."""

    def run(environment: Environment) -> Ended:
        command = environment.submit(name, *words, **variables)
        if name != "steps.py":
            command.until_says("a step")
        command.now()
        return command.end(PATIENCE)

    return run


def failures(chief: str) -> Iterator[Row]:
    """Yield the rows of scripts that fail by themselves; `chief` is the address of chief/0."""
    yield Row(
        fault="an address that no task has", when="as a session is opened", run=script("stray.py"), code=2,
        words=("no TensorFlow server answers at localhost:2299", f"chief/0 at {chief}"),
    )  # fmt: skip
    yield Row(
        fault="a segmentation fault of the script", when="between steps", run=script("crash.py"), code=139,
        words=("crash.py was ended by signal SIGSEGV",),
    )  # fmt: skip


def killed(environment: Environment) -> Ended:
    script = environment.join(to_kill="ps/0")
    process = environment.process("ps/0")
    script.now()
    process.send(signal.SIGKILL)
    return script.end(PATIENCE)


def removed(environment: Environment) -> Ended:
    script = environment.join()
    script.now()
    environment.remove()
    ended = script.end(PATIENCE)
    assert ended.out == "joins\njoined\n", ended
    return ended


def losses(*words: str) -> Iterator[Row]:
    """Yield the row of a lost task; `words` are the reason."""
    yield Row(fault="SIGKILL of ps/0", when=JOINING, run=killed, code=3, words=words)


def removals() -> Iterator[Row]:
    yield Row(fault="`down`", when=JOINING, run=removed, left=NOTHING)
