from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.roles import EVALUATOR, default_master
from tfk8s.core.spec import Job, JobFile, Task

CLUSTER = JobFile(
    name="mnist",
    jobs=(Job(name="chief"), Job(name="evaluator"), Job(name="ps", tasks=2)),
    master="chief",
)


def test_tasks_in_order() -> None:
    assert [str(task) for task in CLUSTER] == ["chief/0", "evaluator/0", "ps/0", "ps/1"]
    assert list(CLUSTER.job("ps")) == [Task("ps", 0), Task("ps", 1)]
    assert CLUSTER.master_task == Task("chief", 0)
    assert CLUSTER.master_task.device == "/job:chief/task:0"


def test_an_unknown_job() -> None:
    with pytest.raises(KeyError, match="worker"):
        CLUSTER.job("worker")


def test_job_files_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CLUSTER.port = 1  # type: ignore[misc]


def test_addresses() -> None:
    assert not CLUSTER.has_addresses
    assert JobFile(name="a", jobs=(Job(name="b", addresses=("c:1",)),), master="b").has_addresses


def test_the_cluster_spec() -> None:
    assert CLUSTER.cluster_spec(str) == {"chief": ["chief/0"], "ps": ["ps/0", "ps/1"]}
    assert CLUSTER.cluster_spec(str, seen_by="evaluator") == {
        "chief": ["chief/0"],
        "evaluator": ["evaluator/0"],
        "ps": ["ps/0", "ps/1"],
    }


@given(st.lists(st.sampled_from(["evaluator", "chief", "worker", "a", "evaluator_"]), unique=True, min_size=1))
def test_only_an_evaluator_sees_the_evaluator(names: list[str]) -> None:
    job_file = JobFile(name="a", jobs=tuple(Job(name=name) for name in names), master=names[0])
    for name in (None, *names):
        seen = job_file.cluster_spec(str, seen_by=name)
        assert (EVALUATOR in seen) == (name == EVALUATOR and EVALUATOR in names)
        assert set(seen) | {EVALUATOR} == set(names) | {EVALUATOR}


def test_only_the_service_of_tf_data_sees_itself() -> None:
    job_file = JobFile(name="a", jobs=(Job(name="worker"), Job(name="input", kind="data", tasks=2)), master="worker")
    assert job_file.cluster_spec(str) == job_file.cluster_spec(str, seen_by="worker") == {"worker": ["worker/0"]}
    assert job_file.cluster_spec(str, seen_by="input")["input"] == ["input/0", "input/1"]


MASTERS = [
    (["worker", "chief", "master"], "master"),
    (["worker", "ps", "chief"], "chief"),
    (["ps", "worker", "a"], "worker"),
    (["ps", "evaluator", "b"], "b"),
    (["evaluator"], None),
    ([], None),
]


def test_the_default_master() -> None:
    for jobs, master in MASTERS:
        assert default_master(jobs) == master, jobs
