"""Stragglers: tasks that are much slower than those of their job."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from job_files import job_file

from tfk8s.core.progress import StepProgress
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.testing import FakeBackend


def cluster(rates: list[float | None], phase: Phase = Phase.RUNNING) -> ClusterStatus:
    """Return a cluster whose workers report these rates."""
    status = FakeBackend(job_file(worker=len(rates))).statuses["mnist"]
    tasks = [
        dataclasses.replace(task, phase=phase, progress=StepProgress(step=1, rate=rate))
        for task, rate in zip(status.tasks, rates, strict=True)
    ]
    return dataclasses.replace(status, tasks=tuple(tasks))


def slow(status: ClusterStatus) -> list[str]:
    return [str(found.task) for found in status.stragglers]


def test_the_slower_one_of_two_is_a_straggler() -> None:
    assert slow(cluster([10.0, 4.9])) == ["worker/1"]
    assert slow(cluster([10.0, 5.0])) == []


def test_a_task_without_a_rate_and_one_that_has_ended_count_for_nothing() -> None:
    assert slow(cluster([None, 1.0, None])) == []
    assert slow(cluster([10.0, 1.0], Phase.SUCCEEDED)) == []


@given(st.lists(st.floats(min_value=0.0, max_value=1e9), min_size=1, max_size=20))
def test_fewer_than_all_are_stragglers(rates: list[float]) -> None:
    found = cluster(list(rates)).stragglers
    assert len(found) <= len(rates) // 2
    assert all(straggler.rate < max(rates) / 2 for straggler in found)
