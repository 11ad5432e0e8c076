"""The monitor beside a forward to the master."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from job_files import job_file

from tfk8s import polling
from tfk8s.cluster import forward_guard
from tfk8s.cluster.forward_guard import ForwardGuard, monitored_tasks
from tfk8s.core.spec import Task
from tfk8s.errors import BackendUnreachable
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.task_events import TaskChange, TaskEvent, lost
from tfk8s.sessions.timing import FAR, TIMING, Timing
from tfk8s.task import wire
from tfk8s.testing import FakeBackend

# Heartbeats are quick, and none that is missed is a loss.
QUICK = replace(TIMING, heartbeat_interval=0.005, missed_heartbeats=1 << 30, call_timeout=0.02)
CHIEF_LOST, WORKER_LOST = lost("chief/0", "evicted"), lost("worker/1", "evicted")
UNREACHED = lost("worker/1", "chief/0 can't reach it")


def replaced(task: str) -> TaskEvent:
    return TaskEvent(task, TaskChange.REPLACED)


class Forward:
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[str] = queue.SimpleQueue()

    def stand_in(self) -> None:
        self.calls.put("stand in")

    def resume(self) -> None:
        self.calls.put("resume")

    def abort_calls(self, reason: str, min_age: float) -> int:
        self.calls.put(f"{reason}, {min_age:g}")
        return 0

    def next(self) -> str:
        return self.calls.get(timeout=20)


class View(ClusterView):
    """A cluster whose master can't reach some tasks."""

    def __init__(self, unreachable: Callable[[], Sequence[str]] = list) -> None:
        super().__init__({"chief/0": "", "worker/0": "", "worker/1": ""})
        self._unreachable = unreachable

    def unreachable(self, source: str | None = None) -> list[str]:
        return list(self._unreachable())


class Scene:
    """A guard, whose forward and events the test sees."""

    def __init__(self, backend: FakeBackend, view: ClusterView | None = None) -> None:
        self.forward = Forward()
        self.events: queue.SimpleQueue[TaskEvent] = queue.SimpleQueue()
        self.guard = ForwardGuard(backend, "mnist", self.forward, self.events.put, view, QUICK)

    def next_event(self) -> TaskEvent:
        return self.events.get(timeout=20)


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    backend = FakeBackend(job_file("mnist", chief=1, worker=2))
    backend.loss_reason = "evicted"
    yield backend
    backend.close()


def lose_master(backend: FakeBackend) -> None:
    """Wait until all tasks are monitored; then the master is gone."""
    polling.wait_until(lambda: len(backend.connections) == 3, "connections", 20)
    for stream in backend.connections:
        stream.settimeout(20)
        received = b""
        while wire.HEARTBEAT not in received:
            received += stream.recv(1000)
    backend.unresponsive = {Task("chief", 0)}
    for stream in backend.connections:
        stream.close()


def test_forward_stands_in_for_a_lost_master(backend: FakeBackend) -> None:
    scene = Scene(backend)
    with scene.guard:
        lose_master(backend)
        assert scene.next_event() == CHIEF_LOST
        assert scene.forward.next() == "stand in"
        backend.unresponsive = set()
        assert scene.next_event() == TaskEvent("chief/0", TaskChange.BACK)
        assert scene.forward.next() == "resume"
        assert backend.observers == 1
    assert backend.observers == 0


def test_calls_go_on_after_a_task_was_removed(backend: FakeBackend) -> None:
    scene = Scene(backend, View())
    backend.scale("mnist", {"worker": 1})
    scene.guard.on_event(WORKER_LOST)
    assert scene.next_event() == WORKER_LOST
    scene.guard.check(float("inf"))
    assert scene.forward.calls.empty()
    assert scene.guard.check_interval is None


def test_calls_are_aborted_while_a_task_is_lost(backend: FakeBackend) -> None:
    scene = Scene(backend, View())
    guard = scene.guard
    guard.on_event(WORKER_LOST)
    guard.check(0.0)
    assert scene.forward.calls.empty()
    guard.check(float("inf"))
    assert scene.forward.next() == "worker/1 was lost: evicted, 0.02"
    guard.on_event(TaskEvent("worker/1", TaskChange.BACK))
    guard.check(float("inf"))
    assert scene.forward.calls.empty()


def test_restarted_task_is_lost_until_the_master_reaches_it(backend: FakeBackend) -> None:
    unreachable = ["worker/1"]
    scene = Scene(backend, View(lambda: unreachable))
    guard = scene.guard
    guard.check(0.0)
    assert scene.next_event() == UNREACHED
    guard.on_event(WORKER_LOST)
    assert scene.next_event() == WORKER_LOST
    guard.on_event(replaced("worker/1"))
    guard.check(float("inf"))
    assert scene.forward.next() == "worker/1 was lost: evicted; chief/0 can't reach the new server yet, 0.02"
    assert scene.events.empty()
    unreachable.clear()
    guard.check(float("inf"))
    assert scene.next_event() == replaced("worker/1")
    assert scene.forward.calls.empty()


def test_restarted_task_that_is_lost_again_is_not_back(backend: FakeBackend) -> None:
    unreachable = ["worker/1"]
    scene = Scene(backend, View(lambda: unreachable))
    scene.guard.check(0.0)
    scene.guard.on_event(WORKER_LOST)
    unreachable.clear()
    scene.guard.check(0.0)
    assert [scene.next_event() for _ in range(2)] == [UNREACHED, WORKER_LOST]
    assert scene.events.empty()


def test_restarted_master_is_back_at_once(backend: FakeBackend) -> None:
    scene = Scene(backend, View())
    for event in (CHIEF_LOST, replaced("chief/0")):
        scene.guard.on_event(event)
        assert scene.next_event() == event
    assert [scene.forward.next() for _ in range(2)] == ["stand in", "resume"]


def test_restarted_task_is_not_back_while_the_master_can_not_be_reached(backend: FakeBackend) -> None:
    answers: list[bool] = []
    broken = True

    def unreachable() -> list[str]:
        answers.append(broken)
        if len(answers) == 1:
            return ["worker/1"]
        if broken:
            raise BackendUnreachable("the API server does not answer")
        return []

    scene = Scene(backend, View(unreachable))
    with scene.guard:
        assert scene.next_event() == UNREACHED
        polling.wait_until(lambda: len(answers) > 3, "several checks", 20)
        assert scene.events.empty()
        broken = False
        assert scene.next_event() == replaced("worker/1")


def test_losses_are_reported_if_the_master_could_not_be_reached_at_first(backend: FakeBackend) -> None:
    def unreachable() -> list[str]:
        raise BackendUnreachable("the API server does not answer")

    scene = Scene(backend, View(unreachable))
    with scene.guard:
        lose_master(backend)
        assert scene.next_event() == CHIEF_LOST


@pytest.mark.parametrize(
    ("jobs", "without", "monitored"),
    [
        ({"chief": 1, "worker": 2}, [], ["chief/0", "worker/0", "worker/1"]),
        ({"chief": 1, "worker": 2}, ["worker/1"], ["chief/0", "worker/0"]),
        ({"chief": 1, "worker": 3}, [], ["chief/0"]),
        ({"chief": 1, "worker": 2, "evaluator": 1}, [], ["chief/0", "worker/0", "worker/1"]),
    ],
)
def test_only_the_master_of_a_large_cluster_is_monitored(
    monkeypatch: pytest.MonkeyPatch, jobs: dict[str, int], without: list[str], monitored: list[str]
) -> None:
    monkeypatch.setattr(forward_guard, "MAX_TASKS", 3)
    assert list(monitored_tasks(FakeBackend(job_file("mnist", **jobs)).observe("mnist"), without)) == monitored


@pytest.mark.parametrize("timing", [TIMING, FAR])
def test_heartbeats_have_the_time_that_the_backend_says(backend: FakeBackend, timing: Timing) -> None:
    backend.timing = timing
    with ForwardGuard(backend, "mnist", Forward(), print) as guard:
        assert guard.monitor.timing is timing
