"""Rows about programs that run in every task, on this machine."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from harness.command import PATIENCE, Command, Ended
from harness.local import NAME, LocalEnvironment
from harness.row import NOTHING, Row

from tfk8s import polling
from tfk8s.backends.local import state

WHEN = "`run`, while programs run"
STOPPED_LIMIT = 20.0  # a stopped program is killed after ten seconds

# A program that waits for a fault in its first run, and succeeds in its second.
# The second takes as long as a `run` that polls needs to show the cause.
TWICE = "[ -e again-$TFK8S_INDEX ] && exec sleep 2; touch again-$TFK8S_INDEX; echo runs; exec sleep 600"


def running(environment: LocalEnvironment) -> Command:
    """Return a `run` of two programs that wait."""
    environment.remove()
    for marker in environment.folder.glob("again-*"):
        marker.unlink()
    jobs = {"worker": {"tasks": 2, "program": ["sh", "-c", TWICE]}}
    rules = {"restart_scope": "cluster"}
    text = json.dumps({"apiVersion": "tfk8s.dev/v1", "name": NAME, "jobs": jobs, "run": rules})
    command = environment.start("run", "--local", environment.file("programs.json", text))
    command.until_says("worker/0 | runs")
    command.until_says("worker/1 | runs")
    return command


def signalled(task: str, number: int) -> Callable[[LocalEnvironment], Ended]:
    """Return a fault: a signal for a task or the supervisor; for `run` itself if `task` is ""."""

    def run(environment: LocalEnvironment) -> Ended:
        command = running(environment)
        pid = environment.pid(task) if task else command.process.pid
        command.now()
        os.kill(pid, number)
        return command.end(PATIENCE)

    return run


def killed(environment: LocalEnvironment) -> Ended:
    """Kill `run`; return when its cluster is gone."""
    command = running(environment)
    supervisor = environment.pid("supervisor")
    command.send(signal.SIGKILL)
    ended = command.end(PATIENCE)
    polling.wait_until(lambda: not state.start_time(supervisor), "the supervisor to end", PATIENCE)
    return replace(ended, seconds=time.monotonic() - command.fault)


def faults() -> Iterator[Row]:
    success = 'the run of cluster "faults" has succeeded'
    yield Row(
        fault="SIGKILL of worker/1", when=WHEN, run=signalled("worker/1", signal.SIGKILL), left=NOTHING,
        words=("worker/1 ended: killed by SIGKILL", success),
    )  # fmt: skip
    yield Row(
        fault="SIGSTOP of worker/1", when=WHEN, run=signalled("worker/1", signal.SIGSTOP), left=NOTHING,
        words=("worker/1 ended: killed by SIGKILL", success), limit=STOPPED_LIMIT,
    )  # fmt: skip
    yield Row(
        fault="SIGTERM of worker/1", when=WHEN, run=signalled("worker/1", signal.SIGTERM), left=NOTHING,
        words=("worker/1 ended: killed by SIGTERM", success), thorough=True,
    )  # fmt: skip
    yield Row(
        fault="SIGKILL of the supervisor", when=WHEN, run=signalled("supervisor", signal.SIGKILL), left=NOTHING,
        code=1, words=("its supervisor is gone, and all tasks with it",),
    )  # fmt: skip
    yield Row(
        fault="SIGKILL of `run`", when=f"{WHEN}, which the supervisor removes", run=killed, code=137, left=NOTHING,
    )  # fmt: skip
    yield Row(fault="Ctrl-C", when=WHEN, run=signalled("", signal.SIGINT), code=130, left=NOTHING)
