"""Rows about session scripts, on this machine and on Kubernetes."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from harness import signals
from harness.command import PATIENCE, Command, Ended
from harness.row import NOTHING, VERDICT, Row

COORDINATING = "in functions of a ParameterServerStrategy"
EAGER = "in an operation of eager execution"
SYNCHRONOUS = "in steps of `tfk8s.strategy()`"
# TensorFlow repeats the function that a killed worker was in, which may have counted already.
COUNTED = re.compile(r"^counted 24[01] of 240$", re.MULTILINE)
_NAP = 8.0  # a frozen task counts as lost after 3 s and more: twice that, and less than the 10 s of a silent worker
JOINING = "while a script joins the server of ps/0"


class Environment(Protocol):
    """A cluster to break, on this machine or on Kubernetes."""

    def submit(self, script: str, *words: object, to_kill: str = "", **variables: str) -> Command:
        """Return a script of tests/faults/scripts that runs; `to_kill` is the task that will be killed."""

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


def coordinates(task: str, number: int, nap: float | None = None) -> Callable[[Environment], Ended]:
    """Send a signal to a task of a ParameterServerStrategy; after a nap, a stopped task continues."""

    def run(environment: Environment) -> Ended:
        script = environment.submit("coordinator.py", to_kill=task if number == signal.SIGKILL else "")
        process = environment.process(task)  # looked for first: the script goes on meanwhile
        script.until_says("schedules")
        script.now()
        process.send(number)
        if nap is not None:
            threading.Timer(nap, process.send, [signal.SIGCONT]).start()
        try:
            ended = script.end(PATIENCE)
        finally:
            if number == signal.SIGSTOP:
                process.send(signal.SIGCONT)
        assert ended.code or COUNTED.search(ended.out), ended
        return ended

    return run


def reads_a_frozen_ps(environment: Environment) -> Ended:
    script = environment.submit("eager.py")
    process = environment.process("ps/0")
    script.until_says("reads")
    script.now()
    process.send(signal.SIGSTOP)
    try:
        return script.end(PATIENCE)
    finally:
        process.send(signal.SIGCONT)


def loses_a_replica(environment: Environment) -> Ended:
    script = environment.submit("synchronous.py", to_kill="worker/1")
    process = environment.process("worker/1")
    script.until_says("a step")
    script.now()
    process.send(signal.SIGKILL)
    return script.end(PATIENCE)


def coordinators(stopped: str) -> Iterator[Row]:
    """Yield the rows of programs for TensorFlow 2; `stopped` is the reason for the loss of a stopped task."""
    for run, name, words in (
        (coordinates("worker/1", signal.SIGKILL), "SIGKILL", ()),
        (coordinates("worker/1", signal.SIGSTOP, _NAP), "SIGSTOP, then SIGCONT", ()),
        (coordinates("worker/1", signal.SIGSTOP), "SIGSTOP", ("worker/1 is silent for 10 s: the other workers run",)),
    ):
        yield Row(
            fault=f"{name} of worker/1", when=COORDINATING, run=run, limit=6 * VERDICT,
            words=("worker/1 was lost", *words),
        )  # fmt: skip
    yield Row(
        fault="SIGKILL of ps/0",
        when=COORDINATING,
        run=coordinates("ps/0", signal.SIGKILL),
        code=3,
        words=("error: ps/0 was ",),
    )
    yield Row(
        fault="SIGKILL of worker/1", when=SYNCHRONOUS, run=loses_a_replica, code=3, words=("error: worker/1 was ",),
    )  # fmt: skip
    for when, run in ((COORDINATING, coordinates("ps/0", signal.SIGSTOP)), (EAGER, reads_a_frozen_ps)):
        yield Row(
            fault="SIGSTOP of ps/0", when=when, run=run, code=3, words=(f"error: ps/0 was lost: {stopped}",),
            thorough=when == COORDINATING,
        )  # fmt: skip


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
