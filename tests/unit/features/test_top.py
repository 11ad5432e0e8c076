"""`tfk8s top`: how what tasks and scripts use is read and shown."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence

import pytest
from fakes.command_line import Run
from job_files import job_file

from tfk8s.backends import usage
from tfk8s.backends.usage import Usage
from tfk8s.core.progress import StepProgress
from tfk8s.core.status import Phase, ScriptPhase, ScriptStatus
from tfk8s.features.top import command
from tfk8s.testing import CREATED, FakeBackend, change, use_backend

pytest_plugins = ("fakes.command_line",)

FOUND = {
    "chief/0": Usage(name="chief/0", cpu=0.02, memory=356e6, memory_limit=4 << 30, received=0.0, sent=0.0),
    "worker/0": Usage(
        name="worker/0", cpu=1.914, cpu_limit=2.0, memory=1.5 * (1 << 30), memory_limit=4 << 30, received=11.4e6,
        sent=2048.0, gpu=0.87, gpu_memory=13 << 30, gpu_memory_limit=24 << 30,
    ),
    "pid 9": Usage(name="pid 9", cpu=0.5, memory=999.0),
}  # fmt: skip
TEXT = """\
TASK      PHASE    CPU        MEMORY          IN         OUT    GPU  GPU MEMORY    REASON
chief/0   Ready    0.02       340Mi of 4Gi    0/s        0/s    -    -
worker/0  Ready    1.91 of 2  1.5Gi of 4Gi    10.9Mi/s   2Ki/s  87%  13Gi of 24Gi
worker/1  Unknown  -          -               -          -      -    -             stopped
pid 9     Running  0.50       999             -          -      -    -             train.py
"""


class Measuring(FakeBackend):
    """A backend that finds `FOUND`."""

    def usage(self, name: str, chosen: Sequence[str]) -> list[Usage]:
        return [FOUND.get(other.name, other) for other in super().usage(name, chosen)]


@pytest.fixture
def backend() -> Iterator[Measuring]:
    backend = Measuring(job_file())
    script = ScriptStatus(name="pid 9", phase=ScriptPhase.RUNNING, command="train.py", since=CREATED)
    lost = change("worker/1", phase=Phase.UNKNOWN, reason="stopped")
    backend.updates = [lambda status: lost(dataclasses.replace(status, scripts=(script,)))]
    with use_backend(backend):
        yield backend


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_table(backend: Measuring, run: Run) -> None:
    assert words(run("top", "mnist")[1]) == words(TEXT)


def test_chosen_tasks_have_no_empty_columns(backend: Measuring, run: Run) -> None:
    assert words(run("top", "mnist", "9")[1]) == words(
        "TASK PHASE CPU MEMORY REASON\npid\x009 Running 0.50 999 train.py".replace("\0", " ")
    )


def test_progress_stands_beside(backend: Measuring, run: Run) -> None:
    progress = StepProgress(step=120, total=1000, rate=35.1)
    backend.updates = [change("worker/0", progress=progress)]
    assert "120/1000 (12%), 35.1 steps/s" in run("top", "mnist", "worker/0")[1]


def test_json(backend: Measuring, run: Run) -> None:
    found = json.loads(run("top", "mnist", "-o", "json")[1])
    assert [task["task"] for task in found["tasks"]] == ["chief/0", "worker/0", "worker/1"]
    worker = found["tasks"][1]
    assert (worker["cpu"], worker["cpu_limit"], worker["gpu"], worker["problem"]) == (1.914, 2.0, 0.87, "")
    assert found["tasks"][2]["cpu"] is None
    assert found["scripts"] == [
        {"script": "pid 9", "command": "train.py", **{key: None for key in worker if key in _AMOUNTS}, "cpu": 0.5,
         "memory": 999.0, "problem": ""}
    ]  # fmt: skip


_AMOUNTS = {field.name for field in dataclasses.fields(Usage)} - {"name", "problem"}


class Ending(Measuring):
    """A backend whose cluster is removed after a look."""

    def usage(self, name: str, chosen: Sequence[str]) -> list[Usage]:
        found = super().usage(name, chosen)
        self.delete(name)
        return found


def test_watch_measures_until_the_cluster_is_removed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PAUSE", 0.0)
    with use_backend(Ending(job_file())):
        code, out, errors = run("top", "--watch", "mnist", "worker/0")
    assert (code, out.count("worker/0"), errors) == (0, 1, 'cluster "mnist" was removed\n')


def test_an_unknown_task(backend: Measuring, run: Run) -> None:
    code, _, errors = run("top", "mnist", "worker/7")
    assert (code, errors.splitlines()[0]) == (
        2,
        'error: there is no task "worker/7"; there are chief/0, worker/0 to worker/1',
    )


@pytest.mark.parametrize("amount", [True, "1", -1, math.inf, math.nan, None, [1], {"a": 1}], ids=repr)
def test_what_is_no_amount_is_not_measured(amount: object) -> None:
    assert usage.parse("a", [{"pid": 0, "cpu": amount, "memory": 1}]) == Usage(name="a", memory=1)
