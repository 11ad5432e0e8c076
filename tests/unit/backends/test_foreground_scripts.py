"""The file in which a script's runner notes why it ended the script."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import pytest

from tfk8s.backends.foreground_scripts import FailureFile
from tfk8s.core.script import Outcome, Script
from tfk8s.sessions import error_names
from tfk8s.sessions.runner import FailureNote

SCRIPT = Script(path=Path("train.py"))


def test_the_note_of_a_runner_is_read_from_a_file_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with FailureFile(SCRIPT) as file:
        assert list(tmp_path.iterdir()) == []
        assert file.outcome(3) == Outcome(3)
        FailureNote(file.environment()[error_names.VARIABLE]).write(error_names.A_TASK_FAILED)
        assert file.outcome(3) == Outcome(3, task_failed=True)
        assert file.environment(7) == {error_names.VARIABLE: "/dev/fd/7"}


def test_a_script_runs_without_a_file_if_none_can_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no" / "such" / "folder"))
    with FailureFile(SCRIPT) as file:
        assert (file.environment(3), list(file.descriptors)) == ({}, [])
        assert file.outcome(0) == Outcome(0)


def test_a_signal_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with FailureFile(SCRIPT) as file:
        assert file.outcome(-signal.SIGSEGV) == Outcome(139)
    assert caplog.messages == ["train.py was ended by signal SIGSEGV"]
