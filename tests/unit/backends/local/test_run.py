"""Tests of the run of programs: what runs again, and what ends the others."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tfk8s.backends.local.programs.process import ProgramProcess
from tfk8s.backends.local.programs.run import ProgramRun
from tfk8s.core.status import Phase
from tfk8s.jobfile.loader import loads

WORKERS = "worker: {tasks: 2, program: [a.py]}"
KILLED = (137, "killed by SIGKILL")
LOST = (138, "another task was lost")


class Loop:
    """Timers, which `pass_time` calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append((self.now + seconds, callback))

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted((timer for timer in self._timers if timer[0] <= end), key=lambda timer: timer[0]):
            self._timers.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = end


class Member:
    """A program that ends when a test says so, and at once when it is ended."""

    def __init__(self, name: str) -> None:
        self.name, self.job = name, name.partition("/")[0]
        self.phase, self.reason = Phase.PENDING, ""
        self.restarts = 0
        self.exit_code: int | None = None
        self.is_running = self.is_stopped = False

    def start(self, reason: str) -> None:
        self.is_running, self.exit_code = True, None
        self.enter(Phase.RUNNING, reason)

    def succeed(self) -> None:
        self.exit_code = 0
        self.enter(Phase.SUCCEEDED, "")

    def ends(self, code: int, text: str = "") -> None:
        self.is_running = self.is_stopped = False
        self.on_end(self, code, text)

    def end(self) -> None:
        if self.is_running:
            self.ends(143, "killed by SIGTERM")

    def kill(self) -> None:
        self.ends(*KILLED)

    def enter(self, phase: Phase, reason: str) -> None:
        self.phase, self.reason = phase, reason

    def stopped_reason(self) -> str:
        return "stopped by a signal" if self.is_stopped else ""

    def __repr__(self) -> str:
        code = "" if self.exit_code is None else f" {self.exit_code}"
        return f"{self.name} {self.phase}{code}, {self.restarts}{f': {self.reason}' if self.reason else ''}"


@pytest.fixture
def loop() -> Loop:
    return Loop()


def begin(
    loop: Loop, jobs: str = "worker: {tasks: 2, program: [a.py]}", rules: str = "{}"
) -> tuple[ProgramRun, list[Member]]:
    job_file = loads(f"{{apiVersion: tfk8s.dev/v1, name: a, jobs: {{{jobs}}}, run: {rules}}}", "f")
    members = [Member(str(task)) for job in job_file.jobs if job.program for task in job]
    run = ProgramRun(loop, job_file, members)
    run.start()
    return run, members


def test_all_ends_with_0_are_the_success(loop: Loop) -> None:
    run, (first, second) = begin(loop)
    first.ends(0)
    assert (repr(first), run.is_running) == ("worker/0 Succeeded 0, 0", True)
    second.ends(0)
    assert (repr(second), run.is_running) == ("worker/1 Succeeded 0, 0", False)


def test_kill_ends_the_programs_that_still_save(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    run, (first, _) = begin(loop)
    monkeypatch.setattr(first, "end", lambda: None)  # it saves
    run.stop()
    assert (first.is_running, run.is_running) == (True, True)
    run.kill()
    assert (repr(first), run.is_running) == ("worker/0 Failed, 0: stopped", False)


def test_the_success_of_the_chief_ends_the_others(loop: Loop) -> None:
    jobs = "chief: {program: [a.py]}, evaluator: {program: [a.py]}, worker: {program: [a.py]}"
    _, members = begin(loop, jobs)
    members[0].ends(0)
    assert list(map(repr, members)) == [
        "chief/0 Succeeded 0, 0",
        "evaluator/0 Succeeded, 0: ended: the run succeeded",
        "worker/0 Succeeded, 0: ended: the run succeeded",
    ]


def test_a_failure_of_its_own_ends_the_run(loop: Loop) -> None:
    run, (first, second) = begin(loop)
    second.ends(1, "exited with 1: ValueError: no data")
    assert repr(first) == "worker/0 Failed, 0: ended: worker/1 failed"
    assert repr(second) == "worker/1 Failed 1, 0: exited with 1: ValueError: no data"
    loop.pass_time(60)
    assert (first.restarts, run.is_running) == (0, False)


@pytest.mark.parametrize(
    ("scope", "restarts"), [("cluster", [1, 1, 1]), ("job", [0, 1, 1]), ("task", [0, 0, 1])]
)  # fmt: skip
def test_a_signal_restarts_the_programs_of_the_scope(loop: Loop, scope: str, restarts: list[int]) -> None:
    jobs = "chief: {program: [a.py]}, worker: {tasks: 2, program: [a.py]}"
    _, members = begin(loop, jobs, f"{{restart_scope: {scope}}}")
    members[2].ends(*KILLED)
    loop.pass_time(0)
    assert [member.restarts for member in members] == restarts
    assert all(member.phase is Phase.RUNNING for member in members)
    cause = "killed by SIGKILL" if scope == "task" else "worker/1 ended: killed by SIGKILL"
    assert repr(members[2]) == f"worker/1 Running, 1: {cause}"
    members[2].ends(0)
    assert repr(members[2]) == "worker/1 Succeeded 0, 1"


@pytest.mark.parametrize(
    ("scope", "ends"),
    [
        ("cluster", "worker/0 Running, 1: worker/1 ended: killed by SIGKILL"),
        ("task", "worker/0 Failed 1, 0: exited with 1"),
    ],
)
def test_a_shell_that_lost_a_task_is_no_failure_if_it_restarts_too(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, scope: str, ends: str
) -> None:
    _, (first, second) = begin(loop, rules=f"{{restart_scope: {scope}}}")
    monkeypatch.setattr(first, "end", lambda: None)  # SIGTERM comes too late
    second.ends(*KILLED)
    loop.pass_time(0)
    first.ends(1, "exited with 1")  # a shell's program has no exit code of its own for a lost task
    loop.pass_time(0)
    assert repr(first) == ends


def test_the_last_restart_is_followed_by_the_end(loop: Loop) -> None:
    run, members = begin(loop, rules="{max_restarts: 2, restart_scope: cluster}")
    for _ in range(3):
        members[0].ends(*KILLED)
        loop.pass_time(5)
    assert list(map(repr, members)) == [
        "worker/0 Failed 137, 2: killed by SIGKILL", "worker/1 Failed, 2: ended: worker/0 failed",
    ]  # fmt: skip
    assert not run.is_running


def test_a_lost_task_waits_for_the_reason(loop: Loop) -> None:
    _, (first, second) = begin(loop)
    first.ends(*LOST)
    second.ends(1, "exited with 1: ValueError: no data")  # the reason why the first one lost it
    loop.pass_time(5)
    assert repr(second) == "worker/1 Failed 1, 0: exited with 1: ValueError: no data"
    assert repr(first) == "worker/0 Failed, 0: ended: worker/1 failed"


def test_a_stopped_program_is_named_when_the_others_give_up(loop: Loop) -> None:
    _, (first, second) = begin(loop, rules="{restart_scope: cluster}")
    second.is_stopped = True
    first.ends(*LOST)
    loop.pass_time(1)
    assert [repr(first), repr(second)] == [
        "worker/0 Running, 1: worker/1 was stopped by a signal", "worker/1 Running, 1: worker/1 was stopped by a signal"
    ]  # fmt: skip


def test_the_timeout_ends_all(loop: Loop) -> None:
    run, members = begin(loop, rules="{timeout: 1h}")
    members[0].ends(0)
    loop.pass_time(3600)
    assert list(map(repr, members)) == [
        "worker/0 Succeeded 0, 0", "worker/1 Failed 124, 0: ended: the run has reached its timeout of 1h",
    ]  # fmt: skip
    assert not run.is_running


def test_a_restart_on_request_begins_the_run_again(loop: Loop) -> None:
    run, members = begin(loop, rules="{timeout: 1h, max_restarts: 0}")
    members[0].ends(0)
    members[1].ends(*KILLED)
    loop.pass_time(1800)
    run.restart([members[1]])
    loop.pass_time(1800)
    assert list(map(repr, members)) == [
        "worker/0 Running, 1: restarted on request", "worker/1 Running, 1: restarted on request",
    ]  # fmt: skip
    loop.pass_time(1800)
    assert members[0].exit_code == 124


def test_the_restart_of_a_server_leaves_an_ended_run(loop: Loop) -> None:
    run, members = begin(loop)
    members[0].ends(1, "exited with 1")
    run.restart([])
    loop.pass_time(5)
    assert (members[0].exit_code, [member.restarts for member in members]) == (1, [0, 0])


def test_a_restart_on_request_does_not_count(loop: Loop) -> None:
    run, members = begin(loop, rules="{max_restarts: 1}")
    run.restart([members[0]])
    loop.pass_time(0)
    assert [member.restarts for member in members] == [1, 0]
    members[0].ends(*KILLED)
    loop.pass_time(0)
    assert repr(members[0]) == "worker/0 Running, 2: killed by SIGKILL"


def test_a_program_that_stays_stopped_is_killed(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: loop.now)
    _, (first, second) = begin(loop)
    second.is_stopped = True
    loop.pass_time(9)
    assert second.restarts == 0
    loop.pass_time(3)
    assert [repr(first), repr(second)] == ["worker/0 Running, 0", "worker/1 Running, 1: killed by SIGKILL"]


def test_the_end_of_the_cluster_ends_all(loop: Loop) -> None:
    run, members = begin(loop)
    run.stop()
    assert list(map(repr, members)) == ["worker/0 Failed, 0: stopped", "worker/1 Failed, 0: stopped"]
    assert not run.is_running


def test_a_success_shows_no_reason_of_an_earlier_restart() -> None:
    shown: list[tuple[Phase, str]] = []
    nothing: Any = SimpleNamespace(words=(), folder="", environment={})
    program = ProgramProcess(nothing, nothing, nothing, nothing, lambda task: shown.append((task.phase, task.reason)))
    program.enter(Phase.RUNNING, "killed by SIGKILL")
    program.succeed()
    assert shown == [(Phase.RUNNING, "killed by SIGKILL"), (Phase.SUCCEEDED, "")]


def test_a_program_that_can_not_start_ends_with_the_reason(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    nothing: Any = SimpleNamespace(words=(), folder="", environment={})
    program = ProgramProcess(loop, nothing, nothing, nothing, lambda _: None)
    ends: list[tuple[int, str]] = []
    program.on_end = lambda _, code, text: ends.append((code, text))
    monkeypatch.setattr("os.open", refuse)
    program.start("")
    monkeypatch.undo()
    assert (ends, program.is_running) == ([], True), "not before its group knows the others"
    loop.pass_time(0)
    assert (ends, program.is_running) == ([(1, "can't start: [Errno 24] Too many open files")], False)
