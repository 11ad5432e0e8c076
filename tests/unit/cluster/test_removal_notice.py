"""The notice of a cluster's removal, which commands give."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from job_files import job_file

from tfk8s.cluster.removal_notice import RemovalNotice
from tfk8s.core.lifetime import Limits
from tfk8s.testing import FakeBackend


class Days:
    """A clock that the waits of a notice move."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return False


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    """A cluster that `max_duration` removes at 5000 s."""
    backend = FakeBackend(job_file())
    limit(backend, 4000.0)
    yield backend
    backend.close()


def limit(backend: FakeBackend, seconds: float | None) -> None:
    known = backend.statuses["mnist"]
    backend.statuses["mnist"] = dataclasses.replace(known, created=1000.0, limits=Limits(seconds, None))


def test_the_notice_comes_ten_minutes_before(backend: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    days = Days()
    RemovalNotice(backend, "mnist", wait=days.wait, clock=lambda: days.now).watch()
    assert days.waits == [60.0, 3340.0]
    assert caplog.messages == ['cluster "mnist" will be removed in 10m (max_duration)']


def test_a_limit_that_an_up_has_moved_is_read_again(backend: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    days = Days()

    def wait(seconds: float) -> bool:
        if len(days.waits) == 1:
            limit(backend, 8000.0)
        return days.wait(seconds)

    RemovalNotice(backend, "mnist", wait=wait, clock=lambda: days.now).watch()
    assert days.waits == [60.0, 3340.0, 4000.0]
    assert len(caplog.messages) == 1


def test_a_command_that_starts_late_tells_at_once(backend: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    days = Days()
    days.now = 4800.0
    RemovalNotice(backend, "mnist", wait=days.wait, clock=lambda: days.now).watch()
    assert caplog.messages == ['cluster "mnist" will be removed in 2m20s (max_duration)']


def test_no_limit_and_no_answer_end_the_watch(backend: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    days = Days()
    limit(backend, None)
    RemovalNotice(backend, "mnist", wait=days.wait, clock=lambda: days.now).watch()
    backend.statuses.clear()
    RemovalNotice(backend, "mnist", wait=days.wait, clock=lambda: days.now).watch()
    assert (days.waits, caplog.messages) == ([60.0, 60.0], [])


def test_the_end_of_the_command_ends_the_watch(backend: FakeBackend) -> None:
    notice = RemovalNotice(backend, "mnist")
    with notice:
        pass
    notice.watch()  # ends at once
