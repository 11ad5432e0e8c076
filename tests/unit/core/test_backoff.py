"""Tests of the pauses before restarts."""

from __future__ import annotations

from tfk8s.core.backoff import Backoff


def test_pauses_grow_until_a_process_has_run_for_a_minute() -> None:
    backoff = Backoff()
    assert [backoff.pause(0) for _ in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert [backoff.pause(ran) for ran in (60, 61, 0)] == [30, 0, 1]
