"""Tests of the rules of a run."""

from __future__ import annotations

import pytest

from tfk8s.core import programs
from tfk8s.core.job_kinds import success_tasks
from tfk8s.core.programs import Program, RunPolicy, run_result
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.jobfile.loader import loads


def chosen(jobs: str, run: str = "{}") -> str:
    job_file = loads(f"{{apiVersion: tfk8s.dev/v1, name: a, jobs: {{{jobs}}}, run: {run}}}", "f")
    return " ".join(map(str, success_tasks(job_file)))


def test_success_of_a_run() -> None:
    worker, chief = "worker: {tasks: 2, program: [a.py]}", "chief: {program: [a.py]}"
    evaluator = "evaluator: {program: [a.py]}"
    assert chosen(worker) == "worker/0 worker/1"
    assert chosen(f"{worker}, {evaluator}, ps: 1") == "worker/0 worker/1"
    assert chosen(f"{worker}, {chief}") == "chief/0"
    assert chosen(f"{worker}, chief: 1") == "worker/0 worker/1"
    assert chosen(evaluator + ", ps: 1") == "evaluator/0"
    assert chosen(f"{worker}, {chief}", "{success: worker/1}") == "worker/1"
    assert chosen(f"{worker}, {chief}", "{success: worker}") == "worker/0 worker/1"


@pytest.mark.parametrize(
    ("restart_on", "codes"),
    [("exit-code", {0: False, 1: False, 42: True, 127: False, 128: True, 137: True}),
     ((1, 143), {0: False, 1: True, 42: False, 137: False, 143: True}),
     ("failure", {0: False, 1: True, 137: True}), ("never", {0: False, 1: False, 42: False, 137: False})],
)  # fmt: skip
def test_restarts_after_exit_codes(restart_on: str | tuple[int, ...], codes: dict[int, bool]) -> None:
    policy = RunPolicy(restart_on=restart_on, max_restarts=2)
    assert {code: policy.restarts_after(code, 1) for code in codes} == codes
    assert not any(policy.restarts_after(code, 2) for code in codes)
    assert programs.parse_restart_word(programs.restart_word(restart_on)) == restart_on


def test_result_of_a_run() -> None:
    both = ["worker/0", "worker/1"]
    assert run_result({}, both) is None
    assert run_result({"worker/0": 0}, both) is None
    assert run_result({"worker/0": 0, "worker/1": 0}, both) == 0
    assert run_result({"worker/0": 0, "worker/1": 7}, both) == 7
    assert run_result({"worker/1": 7, "worker/0": 0}, both[:1]) == 0  # the success came first, and ends the run
    assert run_result({"worker/1": 7}, both[:1]) == 7


def test_exit_codes_of_signals() -> None:
    assert [programs.exit_code(code) for code in (0, 3, -9, -15)] == [0, 3, 137, 143]


def test_scripts_and_commands() -> None:
    assert Program(("train.py", "--fast"), "/home/me").is_script
    assert str(Program(("../train.py",), "/home/me").script) == "/home/me/../train.py"
    assert not Program(("/app/train.py",), "/home/me").is_script
    assert not Program(("python3", "train.py"), "/home/me").is_script


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("train.py --fast", "train.py --fast"),
        ("python3 /app/train.py -u", "/app/train.py -u"),
        ("/opt/venv/bin/python3.12 -u -OO -m trainer -x", "-m trainer -x"),
        ("python -W error -Wignore -X utf8 -Xdev train.py", "train.py"),
        ("python3 -c print(1)", ""),
        ("python3 -I -m trainer", ""),
        ("python3 -m", ""),
        ("python3 -W", ""),
        ("python3", ""),
        ("sh -c train.py", ""),
        ("/app/train.py", ""),
    ],
)
def test_what_python_runs(words: str, arguments: str) -> None:
    assert Program(tuple(words.split())).python_arguments == tuple(arguments.split())


def test_status_of_a_run() -> None:
    both = (Task("worker", 0), Task("worker", 1))

    def status(*ends: tuple[Phase, int | None]) -> ClusterStatus:
        tasks = (
            TaskStatus(task=task, phase=phase, address="a:1", is_program=True, exit_code=code)
            for task, (phase, code) in zip(both, ends, strict=True)
        )
        return ClusterStatus(
            name="a", backend="local", location="", target="", master=both[0], tasks=tuple(tasks), success=both
        )

    runs, done, failed = (Phase.RUNNING, None), (Phase.SUCCEEDED, 0), (Phase.FAILED, 7)
    again = (Phase.FAILED, None)  # runs again soon
    statuses = [status(runs, runs), status(done, runs), status(done, done), status(done, failed), status(done, again)]
    phases = [Phase.RUNNING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED, Phase.FAILED]
    assert [status.phase for status in statuses] == phases
    assert [status.exit_code for status in statuses] == [None, None, 0, 7, None]
    assert [status.ready for status in statuses] == [2, 2, 2, 1, 1]
    names = [status.failed_program and str(status.failed_program.task) for status in statuses]
    assert names == [None, None, None, "worker/1", None]


def test_only_what_has_got_sigterm_may_save_and_not_for_ever() -> None:
    assert programs.may_save(True, 10.0, 9.9)
    assert not any(programs.may_save(*values) for values in [(True, 10.0, 10.0), (True, None, 1.0), (False, 10.0, 1.0)])


def test_words_of_a_program_get_the_values_of_their_task() -> None:
    cluster = '{"ps": ["a:1", "b:2"], "worker": ["c:3"]}'
    environment = {"TFK8S_JOB": "worker", "TFK8S_INDEX": "0", "TFK8S_CLUSTER": cluster, "HOME": "/"}
    words = ["a.py", "--task=$(TFK8S_JOB)/$(TFK8S_INDEX)", "--ps=$(TFK8S_HOSTS:ps)", "$(HOME) $TFK8S_INDEX $$"]
    expected = ["a.py", "--task=worker/0", "--ps=a:1,b:2", "$(HOME) $TFK8S_INDEX $$"]
    assert programs.expand(words, environment) == expected
