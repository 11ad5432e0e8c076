"""Sessions that have failed are closed aside; what else every session gets is in tests/local."""

from __future__ import annotations

import threading

import pytest

from tfk8s import constraints


def test_a_session_that_hangs_while_it_closes_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "_CLOSE_SECONDS", 0.01)
    hangs = threading.Event()
    constraints.close_aside(lambda: hangs.wait(60))
    hangs.set()


def test_what_it_says_as_it_closes_is_left_out() -> None:
    closed = []

    def close() -> None:
        closed.append(True)
        raise RuntimeError("Session 38f42b is not found. Possibly, this master has restarted.")

    constraints.close_aside(close)
    assert closed
