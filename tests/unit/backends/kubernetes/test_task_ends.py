"""What becomes of tasks while a script runs, from what a watch tells of their pods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tfk8s.backends.kubernetes import script_pod, task_ends
from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.backends.kubernetes.reflector import Change
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase, TaskStatus
from tfk8s.sessions.task_monitor import SILENCE

CLUSTER = SimpleNamespace(name="mnist", namespace="ml", tasks=[Task("ps", 0), Task("worker", 0), Task("worker", 1)])


def pod(name: str, *, end: str = "", reason: str = "Error", deleted: bool = False) -> dict:
    last = {"terminated": {"containerID": end, "exitCode": 137, "reason": reason}} if end else {}
    container = {"state": {"running": {}}, "lastState": last, "ready": True}
    metadata = {
        "name": f"mnist-{name}",
        "uid": name,
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}),
    }
    spec = {"containers": [{"resources": {"limits": {"memory": "4Gi"}}}]}
    return {"metadata": metadata, "spec": spec, "status": {"containerStatuses": [container]}}


class Watch:
    """Tells of changes, and then that it may not watch."""

    def __init__(self, *changes: dict) -> None:
        self.told, self.over = changes, threading.Event()

    def begin(self) -> list[dict]:
        return [pod("ps-0", end="c0"), pod("worker-0"), pod("worker-1")]

    def changes(self, goes_on: Callable[[], bool]) -> Iterator[Change]:
        self.goes_on = goes_on
        yield from (Change(gone=False, now=one) for one in self.told)
        self.over.set()
        raise ApiError(403, "you may not")


def test_ends_since_then_are_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(
        pod("ps-0", end="c0"), pod("worker-0", deleted=True), pod("worker-1", end="c1", reason="OOMKilled"),
        pod("other-0", deleted=True),
    )  # fmt: skip
    monkeypatch.setattr(task_ends, "Reflector", lambda *_: watch)
    seen = task_ends.TaskEndWatcher(None, CLUSTER)
    assert watch.over.wait(20)
    assert dict(seen.known(20)) == {
        Task("worker", 0): "its pod was deleted",
        Task("worker", 1): "killed at its memory limit of 4Gi (OOMKilled): raise jobs.worker.memory",
    }


def test_each_end_is_told_once_and_where_none_is_known_what_the_pod_says(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted = pod("worker-0", deleted=True)
    watch = Watch(deleted, pod("worker-1", end="c1"), deleted, pod("worker-1", end="c1"))
    monkeypatch.setattr(task_ends, "Reflector", lambda *_: watch)
    seen = task_ends.TaskEndWatcher(None, CLUSTER)
    assert watch.over.wait(20)
    stands = TaskStatus(task=Task("worker", 1), phase=Phase.PENDING, address="", reason="no node has 4 GPUs free")
    looks = [stands, replace(stands, reason=""), replace(stands, phase=Phase.READY, since=10.0)]
    monkeypatch.setattr(task_ends.status, "status", lambda *_: SimpleNamespace(tasks=[looks.pop(0)]))
    assert seen.why(Task("worker", 0), SILENCE) == "its pod was deleted"
    assert (
        seen.why(Task("worker", 1), SILENCE) == "killed (exit code 137): by its node, or by someone with rights on it"
    )
    assert seen.why(Task("worker", 1), SILENCE) == "no node has 4 GPUs free"
    assert [seen.why(Task("worker", 1), SILENCE) for _ in range(2)] == [SILENCE] * 2


def test_at_its_end_nobody_watches_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    queries: list[dict[str, str]] = []
    monkeypatch.setattr(task_ends, "Reflector", lambda _, __, query: queries.append(query) or watch)
    with task_ends.TaskEndWatcher(None, CLUSTER):
        assert watch.over.wait(20)
        (query,) = queries
        assert query["labelSelector"].endswith(",app.kubernetes.io/component!=session-script")
        assert watch.goes_on()
    assert not watch.goes_on()


def test_a_pod_that_goes_is_told_once_however_often_it_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_ends, "Reflector", lambda *_: Watch())
    with task_ends.TaskEndWatcher(None, CLUSTER) as seen:
        told = [seen._why(Task("worker", 0), pod("worker-0", deleted=True)) for _ in range(2)]
    assert told == ["its pod was deleted", ""]


@pytest.mark.parametrize(("what", "waited"), [(SILENCE, 0.0), ("Connection refused", task_ends._KUBELET_SECONDS)])
def test_kubelet_is_waited_for_where_something_has_ended(
    monkeypatch: pytest.MonkeyPatch, what: str, waited: float
) -> None:
    monkeypatch.setattr(task_ends, "Reflector", lambda *_: Watch())
    stands = TaskStatus(task=Task("worker", 1), phase=Phase.READY, address="")
    monkeypatch.setattr(task_ends.status, "status", lambda *_: SimpleNamespace(tasks=[stands]))
    with task_ends.TaskEndWatcher(None, CLUSTER) as seen:
        waits: list[float] = []
        monkeypatch.setattr(seen._changed, "wait_for", lambda _, seconds: waits.append(seconds))
        assert seen.why(Task("worker", 1), what) == what
    assert waits == [waited]


def test_where_nothing_ends_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_ends, "Reflector", lambda *_: Watch())
    assert not task_ends.TaskEndWatcher(None, CLUSTER).known(0)


def test_of_all_tasks_those_are_explained_that_are_missing_or_ended_lately(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def status(index: int, phase: Phase, since: float, reason: str) -> TaskStatus:
        return TaskStatus(task=Task("worker", index), phase=phase, address="", since=since, reason=reason)

    tasks = (
        status(0, Phase.PENDING, 5, "no node has 4 GPUs free"),
        status(1, Phase.READY, 5, "killed long ago"),
        status(2, Phase.READY, 15, "killed a moment ago"),
        status(3, Phase.READY, 15, "ended with exit code 137"),
    )
    known = {Task("worker", 3): "evicted"}
    monkeypatch.setattr(script_pod.status, "status", lambda *_: SimpleNamespace(tasks=tasks))
    script_pod._explain(None, CLUSTER, 10, known)
    assert capsys.readouterr().err == (
        "tfk8s: worker/0: no node has 4 GPUs free\ntfk8s: worker/2: killed a moment ago\ntfk8s: worker/3: evicted\n"
    )
