"""What is done while a task is lost, beside a loopback address that leads to the master."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest
from job_files import job_file

from tfk8s import polling
from tfk8s.cluster import forward_guard
from tfk8s.cluster.forward_guard import ForwardGuard
from tfk8s.core.spec import Task
from tfk8s.errors import BackendUnreachable, InvalidInput
from tfk8s.sessions import task_monitor
from tfk8s.testing import FakeBackend


class Forward:
    """Notes what it is told to do."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def lose(self) -> None:
        self.done.append("lose")

    def find(self) -> None:
        self.done.append("find")

    def end_calls(self, why: str, patience: float) -> int:
        self.done.append(f"{why}, {patience:g}")
        return 0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_monitor, "_AGAIN_SECONDS", 0.005)
    monkeypatch.setattr(task_monitor, "SILENT", 1 << 30)
    monkeypatch.setattr(forward_guard, "SILENT", 1 << 30)
    monkeypatch.setattr(forward_guard, "_LOOK_SECONDS", 0.005)
    monkeypatch.setattr(forward_guard.active_calls, "PATIENCE", 0.02)
    monkeypatch.setattr(forward_guard.active_calls, "LEAST_PATIENCE", 1000.0)


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    backend = FakeBackend(job_file("mnist", chief=1, worker=2))
    backend.loss_reason = "evicted"
    yield backend
    backend.close()


Heard = queue.SimpleQueue


def begin(backend: FakeBackend, forward: Forward, heard: Heard, **options: object) -> ForwardGuard:
    guarded = ForwardGuard(backend, "mnist", forward, lambda *what: heard.put(what), **options)
    guarded.__enter__()
    polling.wait_until(lambda: len(guarded._losses._known) == 3 - len(options.get("without", ())), "all to be held", 20)
    return guarded


def test_a_lost_master_is_stood_in_for_until_it_is_back(backend: FakeBackend) -> None:
    forward, heard = Forward(), Heard()
    guarded = begin(backend, forward, heard)
    backend.unresponsive = {Task("chief", 0)}
    for stream in backend.connections:
        stream.close()
    assert heard.get(timeout=20) == ("chief/0", "evicted", False)
    assert forward.done == ["lose"]
    backend.unresponsive = set()
    assert heard.get(timeout=20) == ("chief/0", "", False)
    assert forward.done == ["lose", "find"]
    assert backend.observers == 1
    guarded.__exit__(None, None, None)
    assert backend.observers == 0


def test_where_nobody_knows_which_calls_need_a_lost_task_all_are_ended_after_a_while(backend: FakeBackend) -> None:
    forward, heard = Forward(), Heard()
    unreached = ["worker/1"]
    guarded = begin(backend, forward, heard, unreached=lambda: unreached)
    assert heard.get(timeout=20) == ("worker/1", "chief/0 does not reach it", False)  # from the beginning
    guarded._take("worker/1", "evicted", anew=False)
    assert heard.get(timeout=20) == ("worker/1", "evicted", False)
    guarded._end_calls(0.0)
    assert forward.done == []
    guarded._end_calls(float("inf"))
    assert forward.done == ["worker/1 was lost: evicted, 0.02"]
    guarded._take("worker/1", "", anew=True)
    guarded._end_calls(float("inf"))
    assert forward.done[-1] == "worker/1 was lost: evicted; chief/0 does not reach the new one yet, 0.02"
    del unreached[:], forward.done[:]
    assert heard.get(timeout=20) == ("worker/1", "", True)
    guarded._end_calls(float("inf"))
    assert forward.done == []
    guarded.__exit__(None, None, None)


def test_while_the_way_to_the_master_is_broken_a_new_task_is_not_said_to_be_back(backend: FakeBackend) -> None:
    heard, asked = Heard(), []
    broken = True

    def unreached() -> list[str]:
        asked.append(broken)
        if len(asked) == 1:
            return ["worker/1"]
        if broken:
            raise BackendUnreachable("the API server does not answer")
        return []

    guarded = begin(backend, Forward(), heard, unreached=unreached)
    assert heard.get(timeout=20) == ("worker/1", "chief/0 does not reach it", False)
    polling.wait_until(lambda: len(asked) > 3, "it to be asked several times", 20)
    assert heard.empty()
    broken = False
    assert heard.get(timeout=20) == ("worker/1", "", True)
    guarded.__exit__(None, None, None)


def test_where_the_way_to_the_master_is_broken_at_first_losses_are_told_all_the_same(backend: FakeBackend) -> None:
    def unreached() -> list[str]:
        raise BackendUnreachable("the API server does not answer")

    heard = Heard()
    guarded = begin(backend, Forward(), heard, unreached=unreached)
    backend.unresponsive = {Task("chief", 0)}
    for stream in backend.connections:
        stream.close()
    assert heard.get(timeout=20) == ("chief/0", "evicted", False)
    guarded.__exit__(None, None, None)


def test_a_task_that_is_left_out_may_be_lost(backend: FakeBackend) -> None:
    guarded = begin(backend, Forward(), Heard(), without=["worker/1"])
    assert "worker/1" not in guarded._losses._known
    guarded.__exit__(None, None, None)
    with pytest.raises(InvalidInput, match="the master, to which they connect"):
        ForwardGuard(backend, "mnist", Forward(), lambda *what: None, without=["chief/0"])


@pytest.mark.parametrize(
    ("jobs", "watched"),
    [
        ({"chief": 1, "worker": 2}, ["chief/0", "worker/0", "worker/1"]),
        ({"chief": 1, "worker": 3}, ["chief/0"]),
        ({"chief": 1, "worker": 2, "evaluator": 1}, ["chief/0", "worker/0", "worker/1"]),
    ],
)
def test_of_many_tasks_the_master_alone_is_watched(
    monkeypatch: pytest.MonkeyPatch, jobs: dict[str, int], watched: list[str]
) -> None:
    monkeypatch.setattr(forward_guard, "MOST_TASKS", 3)
    with ForwardGuard(FakeBackend(job_file("mnist", **jobs)), "mnist", Forward(), lambda *what: None) as guarded:
        assert list(guarded._losses._dials) == watched


def test_through_an_api_server_silence_is_given_more_time(backend: FakeBackend) -> None:
    backend.name = "kubernetes"
    with ForwardGuard(backend, "mnist", Forward(), lambda *what: None) as guarded:
        assert guarded._losses._silent == task_monitor.SILENT_FAR


def test_a_new_master_is_back_at_once(backend: FakeBackend) -> None:
    forward, heard = Forward(), Heard()
    guarded = begin(backend, forward, heard, unreached=list)
    guarded._take("chief/0", "evicted", anew=False)
    guarded._take("chief/0", "", anew=True)
    assert forward.done == ["lose", "find"]
    assert [heard.get(timeout=20) for _ in range(2)] == [("chief/0", "evicted", False), ("chief/0", "", True)]
    guarded.__exit__(None, None, None)


def test_a_new_task_that_is_lost_too_is_not_said_to_be_back(backend: FakeBackend) -> None:
    heard, unreached = Heard(), ["worker/1"]
    guarded = begin(backend, Forward(), heard, unreached=lambda: unreached)
    guarded._take("worker/1", "evicted", anew=False)
    del unreached[:]
    guarded._look_for_new()
    assert [heard.get(timeout=20)[1] for _ in range(2)] == ["chief/0 does not reach it", "evicted"]
    assert heard.empty()
    guarded.__exit__(None, None, None)
