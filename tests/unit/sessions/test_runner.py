"""What the runner decides; scripts themselves run in tests/local."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfk8s.errors import InvalidInput, TaskLost, Tfk8sError
from tfk8s.sessions import active_calls, error_names, runner
from tfk8s.sessions.call_guard import INTERRUPTED, TASK_FAILED
from tfk8s.sessions.runner import FailureNote


def test_outside_of_tensorflow_there_are_no_session_calls() -> None:
    assert active_calls.active_calls() == {}


@pytest.mark.parametrize(("error", "noted"), [(TaskLost("ps/0 was lost"), True), (InvalidInput("no target"), False)])
def test_that_a_task_is_to_blame_is_noted(error: Tfk8sError, noted: bool, tmp_path: Path) -> None:
    path = tmp_path / "verdict"
    assert runner._named(error, FailureNote(str(path)), error_names.A_TASK_FAILED_JUST_NOW) == error.exit_code
    assert path.exists() == noted
    assert not noted or error_names.is_task_failure(path.read_text())


@pytest.mark.parametrize(("code", "noted"), [(TASK_FAILED, True), (INTERRUPTED, False)])
def test_so_it_is_where_the_watch_ends_the_script(
    code: int, noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(runner, "_end", ended.append)
    path = tmp_path / "verdict"
    FailureNote(str(path)).end(code)
    assert ended == [code]
    assert path.exists() == noted


def test_where_nobody_asks_or_the_disk_is_full_it_is_not_noted(tmp_path: Path) -> None:
    FailureNote(None).note(error_names.A_TASK_FAILED)
    FailureNote(str(tmp_path / "no" / "such" / "folder")).note(error_names.A_TASK_FAILED)
