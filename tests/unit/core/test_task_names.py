"""Tasks as users type them."""

from __future__ import annotations

import pytest

from tfk8s.core import task_names
from tfk8s.core.spec import Task
from tfk8s.errors import InvalidInput

TASKS = [Task("chief", 0), Task("ps", 0), Task("ps", 1), Task("worker", 0), Task("worker", 1), Task("worker_", 0)]


@pytest.mark.parametrize("word", ["worker/1", "/job:worker/task:1", "/job:worker/replica:0/task:1"])
def test_two_ways_to_write_a_task(word: str) -> None:
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
def test_what_is_none(word: str, message: str, advice: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        task_names.parse_task(word, TASKS)
    assert (str(caught.value), caught.value.help) == (message, advice)


def test_of_one_job_there_is_one() -> None:
    with pytest.raises(InvalidInput, match=r'^there is no job "worker"; there is local$'):
        task_names.require_counts({"worker": 2}, [Task("local", 0)])


def test_a_job_s_name_means_all_its_tasks() -> None:
    assert task_names.select(["worker/0", "ps"], TASKS) == [Task("ps", 0), Task("ps", 1), Task("worker", 0)]
    assert task_names.select([], TASKS) == TASKS
    with pytest.raises(InvalidInput):
        task_names.select(["ps", "nope"], TASKS)


def test_a_number_for_a_job_that_is_none() -> None:
    with pytest.raises(InvalidInput, match=r'^there is no job "worker"; there is local$'):
        task_names.require_counts({"worker": 8}, [Task("local", 0), Task("local", 1)])
