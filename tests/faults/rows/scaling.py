"""Rows about `scale`: faults while a new task starts. On this machine, the new task waits for the harness' gate."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

from harness.command import PATIENCE, Command, Ended
from harness.kube import KubeEnvironment
from harness.local import NAME, LocalEnvironment
from harness.row import VERDICT, Row

WHEN = "`scale`, while a new task starts"


def scales(environment: LocalEnvironment) -> Command:
    """Return a command that waits for a new ps."""
    name = environment.cluster()
    environment.close_gate()
    command = environment.start("scale", "--local", name, "ps=2")
    command.until_says("ps/1")
    return command


def scales_back(environment: LocalEnvironment) -> None:
    environment.open_gate()
    environment.backend.scale(NAME, {"ps": 1})


def killed(task: str) -> Callable[[LocalEnvironment], Ended]:
    def run(environment: LocalEnvironment) -> Ended:
        command = scales(environment)
        command.now()
        os.kill(environment.pid(task), signal.SIGKILL)
        environment.open_gate()
        ended = command.end(PATIENCE)
        scales_back(environment)
        return ended

    return run


def interrupted(environment: LocalEnvironment) -> Ended:
    command = scales(environment)
    command.send(signal.SIGINT)
    ended = command.end(PATIENCE)
    scales_back(environment)
    return ended


def rows() -> Iterator[Row]:
    for task in ("worker/1", "ps/0", "chief/0"):
        yield Row(fault=f"SIGKILL of {task}", when=WHEN, run=killed(task), words=(task,), limit=2 * VERDICT)
    yield Row(
        fault="Ctrl-C", when=WHEN, run=interrupted, code=130,
        words=("interrupted: tasks that start or end already continue",),
    )  # fmt: skip


def killed_on_kind(task: str) -> Callable[[KubeEnvironment], Ended]:
    def run(environment: KubeEnvironment) -> Ended:
        name = environment.cluster(to_kill=task)
        command = environment.start("scale", name, "worker=3")
        command.until_says("worker/2")
        command.now()
        environment.process(task).send(signal.SIGKILL)
        ended = command.end(2 * PATIENCE)
        assert environment.start("scale", name, "worker=2").end(PATIENCE).code == 0
        return ended

    return run


def on_kind() -> Iterator[Row]:
    for task in ("worker/1", "ps/0"):
        yield Row(fault=f"SIGKILL of {task}", when=WHEN, run=killed_on_kind(task), limit=3 * VERDICT)
