"""Commands that run for long say that `max_duration` will remove the cluster."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from fakes.command_line import Run
from job_files import job_file

from tfk8s.cli import scripts
from tfk8s.cluster import removal_notice
from tfk8s.core.lifetime import Limits
from tfk8s.core.script import LogLine, LogOptions
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus
from tfk8s.testing import FakeBackend, use_backend

pytest_plugins = ("fakes.command_line",)


class Ending(FakeBackend):
    """A backend whose cluster will be removed in five minutes. Its logs, and `wait`, end once the notice has looked."""

    def __init__(self) -> None:
        super().__init__(job_file())
        status = self.statuses["mnist"]
        self.statuses["mnist"] = dataclasses.replace(status, created=time.time(), limits=Limits(300, None))
        self._seen = threading.Event()

    def observe(self, name: str) -> ClusterStatus:
        if threading.current_thread().name == "tfk8s-removal-notice":
            self._seen.set()
        return super().observe(name)

    def wait(self) -> None:
        assert self._seen.wait(20)

    def logs(self, name: str, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        yield from super().logs(name, tasks, options)
        if options.follow:
            self.wait()


NOTICE = 'cluster "mnist" will be removed in '


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ending]:
    monkeypatch.setattr(removal_notice, "FIRST_LOOK", 0.0)
    backend = Ending()
    with use_backend(backend):
        yield backend


def test_logs(backend: Ending, run: Run) -> None:
    assert NOTICE in run("logs", "-f", "mnist", "chief/0")[2]
    assert NOTICE not in run("logs", "mnist", "chief/0")[2]


def test_connect(backend: Ending, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "until_gone", lambda _: backend.wait())
    assert NOTICE in run("connect", "mnist")[2]
