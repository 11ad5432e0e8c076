"""The watch over the ends of tasks, while a script runs in a warm pod."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tfk8s.backends.kubernetes.api_server.reflector import ObjectChange
from tfk8s.backends.kubernetes.scripts import end_watch
from tfk8s.backends.kubernetes.scripts.end_watch import EndWatch
from tfk8s.errors import BackendUnreachable

LIMIT = 30.0  # of a wait that ends at once
CHANGE = ObjectChange(deleted=True, object={})
ENDS = {"demo-worker-1": "its pod was deleted"}


class StubInformer:
    """Notes its begin and its end. The begin waits for `may_enter`, and may fail."""

    def __init__(self, *_: object, error: Exception | None = None) -> None:
        self.error = error
        self.timeouts: list[float] = []
        self.begins, self.may_enter, self.is_closed = threading.Event(), threading.Event(), threading.Event()

    def __enter__(self) -> StubInformer:
        self.begins.set()
        assert self.may_enter.wait(LIMIT)
        if self.error:
            raise self.error
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed.set()

    def ends(self, timeout: float) -> dict[str, str]:
        self.timeouts.append(timeout)
        return ENDS

    def last_change(self, job: str) -> ObjectChange:
        if job != "demo-warm":
            raise BackendUnreachable("silence")
        return CHANGE


def make(monkeypatch: pytest.MonkeyPatch, informer: StubInformer, delay: float = 0.0) -> EndWatch:
    monkeypatch.setattr(end_watch, "Informer", lambda *_: informer)
    monkeypatch.setattr(end_watch, "DELAY", delay)
    client: Any = None
    return EndWatch(client, "ns", "demo")


def test_a_script_ends_while_the_watch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    informer = StubInformer()
    over = threading.Event()

    def run() -> None:
        with make(monkeypatch, informer) as watch:
            assert informer.begins.wait(LIMIT)
            assert watch.ends(0.0) == {}
        over.set()

    threading.Thread(target=run, daemon=True).start()
    assert over.wait(LIMIT / 10)
    assert not informer.is_closed.is_set()
    informer.may_enter.set()
    assert informer.is_closed.wait(LIMIT)


def test_ends_wait_for_nothing_if_the_cluster_cannot_be_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    informer = StubInformer(error=BackendUnreachable("silence"))
    informer.may_enter.set()
    with make(monkeypatch, informer, LIMIT) as watch:
        assert watch.ends(LIMIT) == {}
        assert watch.last_change("demo-warm") is None
    assert informer.timeouts == []


@pytest.mark.parametrize("delay", [0.0, LIMIT])
def test_ends_are_those_of_the_informer(monkeypatch: pytest.MonkeyPatch, delay: float) -> None:
    informer = StubInformer()
    informer.may_enter.set()
    with make(monkeypatch, informer, delay) as watch:
        assert watch.ends(LIMIT) == ENDS
        assert watch.last_change("demo-warm") is CHANGE
        assert watch.last_change("another") is None
    assert informer.timeouts == [LIMIT]
    assert informer.is_closed.is_set()


def test_a_short_script_needs_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    informer = StubInformer()
    with make(monkeypatch, informer, LIMIT):
        pass
    assert not informer.begins.is_set()
