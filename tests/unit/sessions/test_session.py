"""The sessions of a loop, with stand-ins; real ones are in tests/local/training/test_recover.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tfk8s.errors import InvalidInput, TaskLost, TaskRestarted, WaitTimeout
from tfk8s.sessions import session
from tfk8s.sessions.cluster.cluster_view import ClusterView


class Session:
    """Stands for a session that catches the loss of a task."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.graph = self
        self.closed = False

    def as_default(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, error: Exception | None, trace: object) -> bool:
        if isinstance(error, TaskLost):
            self.failure = error
        return self.failure is not None


class Cluster:
    """Stands for tasks that answer, until they don't."""

    def __init__(self, waits: int = 100) -> None:
        self.waits = waits

    def wait(self, timeout: float) -> None:
        if not self.waits:
            raise WaitTimeout("waited for all tasks to answer")
        self.waits -= 1


def loop(
    failures: list[Exception | None],
    prepare: Callable[[Session], object] = lambda session: None,
    *,
    recoveries: int = 10,
    waits: int = 100,
) -> list[Session]:
    """Run a loop whose body raises these errors; return its sessions."""
    seen = []
    for opened in session.RecoveringSessions(Session, prepare, Cluster(waits), recoveries, 1.0):
        with opened:
            seen.append(opened)
            if failure := failures.pop(0):
                raise failure
    return seen


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(session.polling, "rest", waited.append)
    return waited


def test_one_session_without_a_loss() -> None:
    assert len(loop([None])) == 1


def test_each_loss_gets_a_new_session_and_messages(caplog: pytest.LogCaptureFixture) -> None:
    sessions = loop([TaskLost("worker/1 was lost: killed"), TaskLost("ps/0 was lost: killed"), None])
    assert len(set(map(id, sessions))) == 3
    assert caplog.messages[:2] == [
        "worker/1 was lost: killed",
        "a new session opens when all tasks answer (recovery 1 of 10)",
    ]
    assert caplog.messages[2].endswith("; here is the new session")
    assert len(caplog.messages) == 6


def test_pauses_grow_with_quick_losses(pauses: list[float]) -> None:
    loop([TaskLost("gone")] * 8 + [None])
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_no_pause_after_a_long_session(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    # Of each: when the session begins, and is lost; then when the wait for the next one begins, and ends.
    times = iter([0.0, 1, 2, 3, 4, 5, 6, 7, 8, 108, 109, 110, 111, 112, 113, 114, 115])
    monkeypatch.setattr(session.time, "monotonic", lambda: next(times))
    loop([TaskLost("gone")] * 4 + [None])
    assert pauses == [0.0, 1.0, 0.0, 0.0]


def test_last_loss_is_raised() -> None:
    with pytest.raises(TaskLost, match="third"):
        loop([TaskLost("first"), TaskLost("second"), TaskLost("third")], recoveries=2)


def test_other_errors_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        loop([ZeroDivisionError()])


def test_loss_during_preparation_gets_a_new_session() -> None:
    prepared: list[Session] = []

    def prepare(session: Session) -> None:
        prepared.append(session)
        if len(prepared) == 1:
            raise TaskRestarted("ps/0 was restarted")

    seen = loop([None], prepare)
    assert prepared[0].closed
    assert seen == prepared[1:]


def test_lost_tasks_end_the_loop() -> None:
    with pytest.raises(WaitTimeout):
        loop([TaskLost("gone"), None], waits=1)


def test_session_needs_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFK8S_TARGET", raising=False)
    with pytest.raises(InvalidInput, match="TFK8S_TARGET is not set"):
        session.session()
    assert ClusterView({}).master == ""
