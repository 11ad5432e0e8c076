"""The wait for programs."""

from __future__ import annotations

import itertools

import pytest
from job_files import job_file

from tfk8s.cluster import programs
from tfk8s.cluster.programs import wait_for_programs
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.core.status import Phase
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
    assert programs.failure(wait_for_programs(backend, "mnist")) == text
