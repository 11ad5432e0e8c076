"""Tasks as users type them."""

from __future__ import annotations

import pytest

from tfk8s.core import task_names
from tfk8s.core.spec import Task
from tfk8s.errors import InvalidInput

TASKS = [Task("chief", 0), Task("ps", 0), Task("ps", 1), Task("worker", 0), Task("worker", 1), Task("worker_", 0)]


@pytest.mark.parametrize("word", ["worker/1", "/job:worker/task:1", "/job:worker/replica:0/task:1"])
def test_both_forms_of_a_task(word: str) -> None:
    assert task_names.parse_task(word, TASKS) == Task("worker", 1)


@pytest.mark.parametrize(
    ("word", "message", "advice"),
    [
        (
            "worker/7",
            'there is no task "worker/7"; there are chief/0, ps/0 to ps/1, worker/0 to worker/1, worker_/0',
            "did you mean worker/1?",
        ),
        (
            "zzz/99",
            'there is no task "zzz/99"; there are chief/0, ps/0 to ps/1, worker/0 to worker/1, worker_/0',
            None,
        ),
        (
            "worker",
            '"worker" is not a task',
            "write JOB/INDEX; there are chief/0, ps/0 to ps/1, worker/0 to worker/1, worker_/0",
        ),
    ],
)
def test_unknown_tasks(word: str, message: str, advice: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        task_names.parse_task(word, TASKS)
    assert (str(caught.value), caught.value.help) == (message, advice)


def test_a_single_job_is_listed() -> None:
    with pytest.raises(InvalidInput, match=r'^there is no job "worker"; the only job is local$'):
        task_names.require_counts({"worker": 2}, [Task("local", 0)])


def test_a_job_selects_all_its_tasks() -> None:
    assert task_names.select(["worker/0", "ps"], TASKS) == [Task("ps", 0), Task("ps", 1), Task("worker", 0)]
    assert task_names.select([], TASKS) == TASKS
    with pytest.raises(InvalidInput):
        task_names.select(["ps", "nope"], TASKS)


def test_a_count_of_an_unknown_job() -> None:
    with pytest.raises(InvalidInput, match=r'^there is no job "worker"; the only job is local$'):
        task_names.require_counts({"worker": 8}, [Task("local", 0), Task("local", 1)])


def test_the_service_of_tf_data_keeps_a_worker() -> None:
    task_names.require_counts({"input": 2}, [Task("input", 0)], {"input"})
    with pytest.raises(InvalidInput, match=r'^job "input" can\'t have 1 tasks: 2 to 10000$'):
        task_names.require_counts({"input": 1}, [Task("input", 0)], {"input"})


def test_tasks_that_may_hold_variables_are_kept() -> None:
    tasks = [Task("ps", 0), Task("ps", 1), Task("worker", 0), Task("worker", 1)]
    task_names.require_no_variables({"ps": 2, "worker": 1}, tasks, "save them")
    with pytest.raises(InvalidInput) as caught:
        task_names.require_no_variables({"ps": 1}, tasks, "save them")
    assert str(caught.value) == "ps/1 may hold variables, which would be lost"
    assert caught.value.help == "save them"
