"""The runner's failure note; scripts themselves run in tests/local."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfk8s.core.programs import INTERRUPTED
from tfk8s.errors import InvalidInput, TaskLost, Tfk8sError
from tfk8s.sessions import active_calls, error_names, runner
from tfk8s.sessions.call_guard import TASK_FAILED
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.eager import remote_context
from tfk8s.sessions.runner import FailureNote
from tfk8s.task import process_end

LOGGER = logging.getLogger("tfk8s")


@pytest.fixture(autouse=True)
def _process_state() -> Iterator[None]:
    """Restore the process' handlers of signals and messages."""
    handler, handlers, propagate = signal.getsignal(signal.SIGINT), [*LOGGER.handlers], LOGGER.propagate
    yield
    signal.signal(signal.SIGINT, handler)
    LOGGER.handlers[:], LOGGER.propagate = handlers, propagate


def test_no_session_calls_outside_of_tensorflow() -> None:
    assert active_calls.active_calls() == {}


@pytest.mark.parametrize(("error", "is_noted"), [(TaskLost("ps/0 was lost"), True), (InvalidInput("no target"), False)])
def test_failure_of_a_task_is_noted(
    error: Tfk8sError, is_noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_: ClusterProbe) -> None:
        raise error

    path = tmp_path / "note"
    monkeypatch.setenv(error_names.VARIABLE, str(path))
    monkeypatch.setattr(ClusterProbe, "check", check)
    assert runner.main(["train.py"]) == error.exit_code
    assert path.exists() == is_noted
    assert not is_noted or error_names.is_task_failure(path.read_text())


@pytest.mark.parametrize(("code", "is_noted"), [(TASK_FAILED, True), (INTERRUPTED, False)])
def test_failure_is_noted_if_the_guard_ends_the_script(
    code: int, is_noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    path = tmp_path / "note"
    FailureNote(str(path)).end(code)
    assert codes == [code]
    assert path.exists() == is_noted


def test_failure_is_not_noted_without_a_file_or_on_a_full_disk(tmp_path: Path) -> None:
    FailureNote(None).write(error_names.A_TASK_FAILED)
    FailureNote(str(tmp_path / "no" / "such" / "folder")).write(error_names.A_TASK_FAILED)


EARLY = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795263665.384623       6 port.cc:153] oneDNN custom operations are on.
E0000 00:00:1795263665.384623       6 port.cc:153] an error
"""


@pytest.mark.parametrize(
    ("level", "expected"),
    [("1", "E0000 00:00:1795263665.384623       6 port.cc:153] an error\n"), ("0", EARLY)],
)
def test_early_log_lines_follow_the_log_level(
    level: str, expected: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    with runner.without_early_lines():
        os.write(2, EARLY.encode())
    os.write(2, b"after\n")
    assert capfd.readouterr().err == f"{expected}after\n"


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [({"ps/0": "localhost:2222"}, "the script's\n"), ({}, "the script's\nlater\n")],
)
def test_complaints_of_closed_contexts_are_dropped(
    tasks: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def end(_: int) -> None:
        os.write(2, b"later\n")

    kept = os.dup(2)
    monkeypatch.setattr(process_end, "finish", lambda: sys.stderr.write("the script's\n"))
    monkeypatch.setattr(process_end, "end", end)
    monkeypatch.setattr(remote_context, "connected_tasks", lambda: tasks)
    monkeypatch.setattr(remote_context, "close", lambda: end(0))
    try:
        runner.exit_process(0)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert capfd.readouterr().err == expected
