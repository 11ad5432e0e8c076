"""Clusters that are gangs by PodGroups of Kubernetes: all tasks start together or none."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import pytest
from observed import runs
from slots import SLOT, Floor, programs, servers

from tfk8s import concurrency, polling
from tfk8s.core.job_file.mappings import Topology
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job, JobFile
from tfk8s.core.status import Phase
from tfk8s.errors import InvalidInput

TIMES = int(os.environ.get("TFK8S_TEST_TIMES", "3"))


@pytest.mark.parametrize("_", range(TIMES))
@pytest.mark.parametrize("make", [servers, programs])
def test_two_clusters_that_fit_alone_never_run_in_part(floor: Floor, make: Callable[[str], JobFile], _: int) -> None:
    floor.give(5)
    names = ["a", "b"]
    concurrency.map_parallel(floor.backend.apply, [make(name) for name in names], 2)
    placed: list[set[str]] = []

    def one_runs() -> str | None:
        placed.append(floor.placed())
        return next((name for name in names if runs(floor.backend.observe(name))), None)

    floor.until("a", lambda _: one_runs())
    first = one_runs()
    assert first
    (second,) = {*names} - {first}
    waiting = floor.until(second, lambda found: all("minCount" in t.reason or "slot" in t.reason for t in found.tasks))
    assert any("all tasks start together or none" in task.reason for task in waiting.tasks), waiting.tasks
    assert waiting.gang == "PodGroup"
    placed.append(floor.placed())
    assert [at_once for at_once in placed if len(at_once) > 1] == []
    floor.backend.delete(first)
    floor.until_ready(second)
    floor.backend.delete(second)
    polling.wait_until(lambda: not floor.pod_groups(), "the end of the PodGroups", 10)


def test_scale_changes_the_number_of_tasks_that_start_together(floor: Floor) -> None:
    floor.give(5)
    floor.backend.apply(servers("a"))
    floor.until_ready("a")
    assert floor.min_count("a") == 3
    floor.backend.scale("a", {"worker": 4})
    assert floor.min_count("a") == 5
    floor.until("a", lambda found: runs(found) and len(found.tasks) == 5)
    floor.backend.scale("a", {"worker": 1})
    floor.until("a", lambda found: runs(found) and len(found.tasks) == 2)
    assert floor.min_count("a") == 2
    floor.backend.delete("a")
    floor.backend.apply(programs("b"))
    floor.until_ready("b")
    floor.backend.scale("b", {"worker": 4})
    floor.until("b", lambda found: runs(found) and len(found.tasks) == 5)
    assert floor.min_count("b") == 5
    floor.backend.delete("b")


@pytest.mark.parametrize("make", [servers, programs])
def test_a_pod_that_is_deleted_comes_back_alone(floor: Floor, client: Any, make: Callable[[str], JobFile]) -> None:
    floor.give(3)
    floor.backend.apply(make("a"))
    floor.until_ready("a")
    before = {pod["metadata"]["uid"] for pod in floor.pods().values()}
    name = next(name for name in floor.pods() if name.startswith("a-worker-1"))
    client.send("DELETE", f"/api/v1/namespaces/{floor.namespace}/pods/{name}")
    floor.until("a", lambda found: runs(found) and len(before - _uids(floor)) == 1 and len(_uids(floor)) == 3)
    floor.backend.delete("a")


def _uids(floor: Floor) -> set[str]:
    return {pod["metadata"]["uid"] for pod in floor.pods().values() if "deletionTimestamp" not in pod["metadata"]}


def test_a_cluster_stays_what_it_is_until_the_job_file_says_so(floor: Floor) -> None:
    floor.give(3)
    floor.backend.apply(servers("a", gang=False))
    before = _uids_when_ready(floor)
    assert floor.backend.apply(servers("a")) is False
    assert (floor.pod_groups(), _uids(floor)) == ({}, before)
    plan = floor.backend.plan(servers("a", gang=True))
    assert ("PodGroup", "create") in [(change.kind, change.action) for change in plan.changes]
    assert len(plan.restarts) == 3
    floor.backend.apply(servers("a", gang=True))
    floor.until("a", lambda found: runs(found) and not before & _uids(floor))
    assert floor.backend.plan(servers("a")).changes == ()
    floor.backend.apply(servers("a", gang=False))
    floor.until("a", lambda found: runs(found) and not found.gang)
    polling.wait_until(lambda: not floor.pod_groups(), "the end of the PodGroup", 10)
    floor.backend.delete("a")


def _uids_when_ready(floor: Floor) -> set[str]:
    floor.until_ready("a")
    return _uids(floor)


def test_suspend_and_resume_of_a_gang(floor: Floor) -> None:
    floor.give(3)
    floor.backend.apply(servers("a"))
    floor.until_ready("a")
    floor.backend.suspending.suspend("a", "me")
    floor.backend.suspending.resume("a")
    floor.until_ready("a")
    assert floor.min_count("a") == 3
    floor.backend.delete("a")


def test_required_topology_in_a_gang(floor: Floor) -> None:
    floor.give(3)
    file = servers("a")
    together = Topology(pack="host", required=True)
    jobs = tuple(dataclasses.replace(job, topology=together) for job in file.jobs)
    floor.backend.apply(dataclasses.replace(file, jobs=jobs))
    floor.until_ready("a")
    floor.backend.delete("a")


def test_the_job_of_the_limits_removes_the_pod_group(floor: Floor) -> None:
    floor.give(3)
    floor.backend.apply(servers("a", max_duration=20))
    assert floor.min_count("a") == 3
    polling.wait_until(lambda: not floor.pod_groups() and not floor.pods(), "the end of the cluster", 120)


def test_a_gang_that_never_fits_is_refused_at_once(floor: Floor) -> None:
    floor.give(2)
    with pytest.raises(InvalidInput, match="nothing was created") as caught:
        floor.backend.apply(servers("a"))
    assert SLOT in str(caught.value)
    assert (floor.pods(), floor.pod_groups()) == ({}, {})


def test_up_after_down_has_a_pod_group_that_stays(floor: Floor) -> None:
    floor.give(3)
    for _ in range(3):
        floor.backend.apply(servers("a"))
        floor.until_ready("a")
        floor.backend.delete("a")


def succeeding(name: str, **settings: Any) -> JobFile:
    """Return a cluster of two programs, of which the first succeeds at once."""
    program = Program(("sh", "-c", "test $TFK8S_INDEX = 0 || sleep 1000"))
    jobs = (Job(name="worker", tasks=2, program=program),)
    return dataclasses.replace(servers(name, **settings), jobs=jobs, master="worker")


def test_after_a_program_has_succeeded_up_lets_a_new_pod_of_another_start(floor: Floor, client: Any) -> None:
    floor.give(2)
    floor.backend.apply(succeeding("a"))
    halves = {Phase.SUCCEEDED, Phase.RUNNING}
    floor.until("a", lambda found: {task.phase for task in found.tasks} == halves)
    name = next(name for name in floor.pods() if name.startswith("a-worker-1"))
    client.send("DELETE", f"/api/v1/namespaces/{floor.namespace}/pods/{name}", {"gracePeriodSeconds": 0})
    waits = "it waits until all pods of its gang are there, and a program has ended: `tfk8s up` lets it start"
    floor.until("a", lambda found: found.tasks[1].reason == waits)
    floor.backend.apply(succeeding("a"))
    floor.until("a", lambda found: found.tasks[1].phase is Phase.RUNNING)
    assert (floor.backend.apply(succeeding("a")), floor.min_count("a")) == (False, 1)
    floor.backend.suspending.suspend("a", "me")
    floor.backend.suspending.resume("a")
    floor.until("a", lambda found: {task.phase for task in found.tasks} == halves)
    floor.backend.apply(succeeding("a", env={"CHANGED": "yes"}))
    assert floor.min_count("a") == 2
    floor.until("a", lambda found: {task.phase for task in found.tasks} == halves)
    floor.backend.restart("a", None)
    floor.until("a", lambda found: {task.phase for task in found.tasks} == halves)
    floor.backend.delete("a")
