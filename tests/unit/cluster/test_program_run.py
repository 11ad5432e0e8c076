"""The wait for programs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from job_files import job_file

from tfk8s import polling
from tfk8s.cluster import program_run
from tfk8s.cluster.program_run import wait_for_programs
from tfk8s.core.lifetime import Suspension
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.errors import ClusterError, NoSuchCluster
from tfk8s.testing import FakeBackend, change


def test_programs_that_run_long_after_an_end_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    worker = Job(name="worker", tasks=3, program=Program(("train.py",)))
    backend = FakeBackend(job_file("mnist", worker), phase=Phase.RUNNING)
    halves = itertools.count(step=30.0)
    first, second, third = (change(f"worker/{index}", phase=Phase.SUCCEEDED, exit_code=0) for index in range(3))
    again = change("worker/1", phase=Phase.RUNNING, exit_code=None)
    backend.updates = [second, second, again, second, second, second, second, first, third]
    assert wait_for_programs(backend, "mnist", clock=lambda: next(halves)).exit_code == 0
    (message,) = caplog.messages
    assert message == (
        "worker/1 ended with exit code 0 over 60 s ago; worker/0, worker/2 are running, and may wait for an ended "
        "task: set run.timeout for an end"
    )


def gone(status: ClusterStatus) -> NoReturn:
    raise NoSuchCluster("there is no cluster")


def test_a_job_that_a_restart_makes_again_is_no_removal() -> None:
    backend = FakeBackend(job_file("mnist", Job(name="worker", program=Program(("a",)))), phase=Phase.RUNNING)
    end = change("worker/0", phase=Phase.SUCCEEDED, exit_code=0)
    same = change("worker/0", phase=Phase.RUNNING)
    seconds = itertools.count()
    backend.updates = [same, gone, gone, same, gone, same, end]
    assert wait_for_programs(backend, "mnist", clock=lambda: float(next(seconds))).exit_code == 0


def test_a_job_that_stays_away_is_a_removal() -> None:
    backend = FakeBackend(job_file("mnist", Job(name="worker", program=Program(("a",)))), phase=Phase.RUNNING)
    seconds = itertools.count()
    backend.updates = [change("worker/0", phase=Phase.RUNNING, exit_code=None), *[gone] * 10]
    with pytest.raises(ClusterError, match=r'^cluster "mnist" was removed while its programs ran$'):
        wait_for_programs(backend, "mnist", clock=lambda: float(next(seconds)))
    assert len(backend.updates) == 6


def test_the_wait_for_programs_has_no_limit_during_a_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend(job_file("mnist", Job(name="worker", program=Program(("a",)))), phase=Phase.RUNNING)
    pulling = change("worker/0", phase=Phase.PENDING, is_pulling=True)
    backend.updates = [pulling, pulling, change("worker/0", phase=Phase.SUCCEEDED, exit_code=0)]
    limits, wait_until = [], polling.wait_until

    def note_limit(poll: Callable[[], Any], what: Callable[[], str], timeout: float) -> Any:
        limits.append(timeout)
        return wait_until(poll, what, timeout)

    monkeypatch.setattr(polling, "wait_until", note_limit)
    assert wait_for_programs(backend, "mnist").exit_code == 0
    assert limits == [math.inf]


def test_a_suspension_changes_no_result_of_a_run() -> None:
    backend = FakeBackend(job_file("mnist", Job(name="worker", program=Program(("a",))), Job(name="ps")))
    backend.updates = [change("worker/0", phase=Phase.SUCCEEDED, exit_code=0)]
    backend.observe("mnist")
    wish = Suspension(1_700_000_000.0, "tfk8s", idle=1800.0)
    backend.updates = [lambda status: replace(status, suspended=wish, reason="it is suspended")]
    assert wait_for_programs(backend, "mnist").exit_code == 0
    backend.updates = [change("worker/0", phase=Phase.SUSPENDED, exit_code=None)]
    with pytest.raises(ClusterError, match="it is suspended"):
        wait_for_programs(backend, "mnist")


PROGRAM = Program(("train.py",))
TASKS = [
    Job(name=name, tasks=tasks, program=PROGRAM) for name, tasks in (("chief", 1), ("evaluator", 1), ("worker", 2))
]


@pytest.mark.parametrize(
    ("ends", "calls"),
    [
        ({"chief/0": 0}, ["end_programs mnist evaluator worker succeeded=True"]),
        ({"evaluator/0": 0, "worker/0": 0, "worker/1": 0, "chief/0": 0}, []),
        ({"evaluator/0": 0, "worker/1": 3}, ["end_programs mnist chief succeeded=False"]),
    ],
)
def test_programs_of_other_jobs_end_with_the_run(ends: dict[str, int], calls: list[str]) -> None:
    backend = FakeBackend(job_file("mnist", *TASKS), phase=Phase.RUNNING)
    backend.updates = [
        change(task, phase=Phase.FAILED if code else Phase.SUCCEEDED, exit_code=code) for task, code in ends.items()
    ]
    assert wait_for_programs(backend, "mnist").exit_code == max(ends.values())
    assert backend.calls == calls


def test_a_user_who_may_not_end_programs_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ClusterError("you may not patch jobs")

    backend = FakeBackend(job_file("mnist", *TASKS), phase=Phase.RUNNING)
    backend.updates = [change("chief/0", phase=Phase.SUCCEEDED, exit_code=0)]
    monkeypatch.setattr(backend, "end_programs", refuse)
    assert wait_for_programs(backend, "mnist").exit_code == 0
    assert caplog.messages == [
        "the programs of evaluator, worker continue after the end of the run: you may not patch jobs"
    ]


@pytest.mark.parametrize(
    ("restarts", "text"),
    [(0, "worker/0 exited with 200"), (1, "worker/0, restarted once, exited with 200"),
     (2, "worker/0, restarted 2 times, exited with 200")],
)  # fmt: skip
def test_a_failure_after_restarts(restarts: int, text: str) -> None:
    worker = Job(name="worker", program=Program(("train.py",)))
    backend = FakeBackend(job_file("mnist", worker), phase=Phase.RUNNING)
    backend.updates = [
        change("worker/0", phase=Phase.FAILED, exit_code=200, reason="exited with 200", restarts=restarts)
    ]
    assert program_run.failure(wait_for_programs(backend, "mnist")) == text
