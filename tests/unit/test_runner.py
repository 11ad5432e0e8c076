"""What the runner decides; scripts themselves run in tests/local."""

from __future__ import annotations

from tfk8s import calls


def test_outside_of_tensorflow_there_are_no_session_calls() -> None:
    assert calls.under_way() == {}
