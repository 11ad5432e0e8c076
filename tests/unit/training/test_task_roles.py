"""The tasks of `tfk8s.strategy()`."""

from __future__ import annotations

import pytest

from tfk8s.training import task_roles

CLUSTER = {"chief": ["c:1"], "ps": ["p:1", "p:2"], "worker": ["w:1", "w:2", "w:3"]}


def device(job: str, index: int) -> str:
    return f"/job:{job}/replica:0/task:{index}"


WORKERS = [device("worker", i) for i in range(3)]
PS = [device("ps", i) for i in range(2)]


@pytest.mark.parametrize(
    ("without", "job", "variables", "compute", "stored"),
    [
        ([], None, None, WORKERS, PS),
        (["worker/1", "ps/0"], None, None, [WORKERS[0], WORKERS[2]], [PS[1]]),
        (["ps/0", "ps/1"], None, None, WORKERS, WORKERS),
        (["worker/0", "worker/1", "worker/2"], None, None, [device("chief", 0)], PS),
        ([], "ps", "chief", PS, [device("chief", 0)]),
    ],
)
def test_default_jobs(
    without: list[str], job: str | None, variables: str | None, compute: list[str], stored: list[str]
) -> None:
    tasks = task_roles.used_tasks(CLUSTER, without)
    assert task_roles.assign_roles(tasks, job, variables) == task_roles.TaskRoles(compute, stored)
