"""The devices of tasks."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from types import SimpleNamespace

import pytest
from job_files import job_file

from tfk8s.backends import devices
from tfk8s.core.spec import Job, Task
from tfk8s.core.status import Phase
from tfk8s.errors import TaskUnreachable
from tfk8s.sessions.cluster.questions import Questions
from tfk8s.testing import FakeBackend, change

CHIEF, FIRST = Task("chief", 0), Task("worker", 0)


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(job_file())


def devices_of(backend: FakeBackend) -> dict[str, list[str] | str]:
    """Return each task's devices, or its error."""
    answers = devices.list_devices(backend, backend.observe("mnist"))
    return {str(answer.task): answer.error or [device.name for device in answer.devices] for answer in answers}


def cpu(job: str, index: int) -> list[str]:
    return [f"/job:{job}/replica:0/task:{index}/device:CPU:0"]


def test_the_master_lists_all_devices(backend: FakeBackend) -> None:
    expected = {"chief/0": cpu("chief", 0), "worker/0": cpu("worker", 0), "worker/1": cpu("worker", 1)}
    assert devices_of(backend) == expected
    assert len(backend.connections) == 1


def test_each_task_is_asked_if_the_master_is_silent(backend: FakeBackend) -> None:
    backend.unresponsive = {FIRST}
    assert devices_of(backend) == {
        "chief/0": "chief/0 does not answer: Connection refused",
        "worker/0": "worker/0 does not answer: Connection refused",
        "worker/1": cpu("worker", 1),
    }


def test_the_error_of_a_pending_task_has_its_reason(backend: FakeBackend) -> None:
    backend.unresponsive = {FIRST}
    backend.updates = [change("worker/0", phase=Phase.PENDING, reason="no node has 4 GPUs free")]
    assert devices_of(backend)["worker/0"] == ("worker/0 does not answer: it is pending (no node has 4 GPUs free)")


def test_the_service_of_tf_data_has_no_devices() -> None:
    backend = FakeBackend(job_file("mnist", Job(name="chief"), Job(name="input", kind="data", tasks=2)))
    assert devices_of(backend) == {"chief/0": cpu("chief", 0)}
    assert len(backend.connections) == 1


def test_an_evaluator_lists_its_own_devices() -> None:
    backend = FakeBackend(job_file("mnist", chief=1, evaluator=1))
    assert devices_of(backend)["evaluator/0"] == cpu("evaluator", 0)
    assert len(backend.connections) == 2


def test_a_silent_evaluator_is_an_error() -> None:
    backend = FakeBackend(job_file("mnist", chief=1, evaluator=1))
    backend.updates = [lambda status: dataclasses.replace(status, master=CHIEF)]
    status = backend.observe("mnist")
    original = backend.dial

    def dial(name: str, task: Task) -> object:
        if task.job == "evaluator":
            raise ConnectionResetError(104, "Connection reset by peer")
        return original(name, task)

    backend.dial = dial  # type: ignore[method-assign, assignment]
    with pytest.raises(TaskUnreachable, match=r"^chief/0 knows no devices of evaluator/0$"):
        devices.ask_master(backend, status)
    assert devices_of(backend)["evaluator/0"] == ("evaluator/0 does not answer: Connection reset by peer")


def test_a_silent_server_is_a_timeout(backend: FakeBackend) -> None:
    def silent(name: str, task: Task) -> object:
        here, there = socket.socketpair()
        backend.connections.append(there)
        return here

    backend.dial = silent  # type: ignore[method-assign, assignment]
    (answer,) = devices.ask_each(backend, "mnist", [FIRST], timeout=0.01)
    assert answer.error == "worker/0 does not answer within 0.01 s"


@pytest.mark.parametrize(
    ("reaches_all", "unreachable", "error"),
    [
        (False, ["worker/1"], r"^chief/0 can't reach worker/1: asked from this machine, worker/1 answers"),
        (False, [], "^chief/0 does not answer in time whether it can reach the other tasks$"),
        (True, [], None),
    ],
)
def test_an_elastic_master_must_answer_that_it_reaches_all(
    backend: FakeBackend, reaches_all: bool, unreachable: list[str], error: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = SimpleNamespace(reaches_all=lambda: reaches_all, unreachable=lambda: unreachable)
    monkeypatch.setattr(devices, "view", lambda *_, **__: view)
    status = dataclasses.replace(backend.observe("mnist"), is_elastic=True)
    with pytest.raises(TaskUnreachable, match=error) if error else contextlib.nullcontext():
        devices.require_servers(backend, status, Questions())
