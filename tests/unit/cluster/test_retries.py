"""Retries of session scripts."""

from __future__ import annotations

import contextlib

import pytest
from job_files import job_file

from tfk8s.cluster.retries import run_with_retries
from tfk8s.core.script import Outcome, Script
from tfk8s.errors import InvalidInput, ScriptLost, TaskUnreachable
from tfk8s.testing import FakeBackend

SCRIPT = Script(path="train.py")
LOST = Outcome(3, task_failed=True)


def run(outcomes: list[object], allowed: int, script: Script = SCRIPT) -> int:
    """Run a script with these outcomes in turn: exit codes, LOST, or errors."""
    backend = FakeBackend(job_file())

    def attempt(name: str, script: Script) -> Outcome:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome if isinstance(outcome, Outcome) else Outcome(outcome)

    backend.run = attempt
    with contextlib.closing(backend):
        return run_with_retries(backend, "mnist", script, allowed)


@pytest.mark.parametrize("code", [0, 1, 3, 130])
def test_script_without_retries_runs_once(code: int, caplog: pytest.LogCaptureFixture) -> None:
    assert (run([code], 0), caplog.messages) == (code, [])


@pytest.mark.parametrize("code", [0, 1, 2, 3, 130])
def test_only_a_lost_task_is_retried(code: int, caplog: pytest.LogCaptureFixture) -> None:
    assert (run([code], 3), caplog.messages) == (code, [])


def test_each_retry_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    lost = ScriptLost("the script was lost with its pod: preempted")
    assert run([LOST, TaskUnreachable("ps/0 does not answer"), lost, 0], 3) == 0
    assert caplog.messages == [
        "the script failed because of a task; it runs again when all tasks answer (retry 1 of 3)",
        "ps/0 does not answer; it runs again when all tasks answer (retry 2 of 3)",
        "the script was lost with its pod: preempted; it runs again when all tasks answer (retry 3 of 3)",
    ]


def test_the_last_run_decides() -> None:
    assert run([LOST, LOST, LOST], 2) == 3
    with pytest.raises(TaskUnreachable):
        run([LOST, TaskUnreachable("gone")], 1)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("worker/7", 'there is no task "worker/7"; there are chief/0, worker/0 to worker/1'),
        ("chief/0", "sessions can't run without chief/0: it is the master, to which they connect"),
    ],
)
def test_excluded_tasks_exist_and_are_not_the_master(word: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        run([0], 0, Script(path="train.py", environment={"TFK8S_WITHOUT": word}))
    assert str(caught.value) == message
    assert run([0], 0, Script(path="train.py", environment={"TFK8S_WITHOUT": "worker/1"})) == 0
