"""Processes as /proc and their own answers show them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tfk8s.task.programs import inspector
from tfk8s.task.programs.inspector import ThreadSample
from tfk8s.task.programs.stacks import StackListener

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
TICKS = os.sysconf("SC_CLK_TCK")


def write_stat(folder: Path, name: str, state: str, parent: int = 0, ticks: int = 0) -> None:
    folder.mkdir(parents=True)
    fields = [state, str(parent), *["0"] * 9, str(ticks), "1"]
    (folder / "stat").write_text(f"{folder.name} ({name}) {' '.join(fields)} 0 0\n")


def test_threads_with_odd_names(tmp_path: Path) -> None:
    write_stat(tmp_path / "7" / "task" / "7", "python) S (", "S", ticks=4)
    write_stat(tmp_path / "7" / "task" / "8", "tf_Compute", "R")
    assert inspector.threads(7, tmp_path) == {
        7: ThreadSample("python) S (", "S", 5),
        8: ThreadSample("tf_Compute", "R", 1),
    }
    assert inspector.threads(9, tmp_path) == {}


def test_threads_are_summed_by_name_and_state() -> None:
    before = {7: ThreadSample("python", "S", 5), 8: ThreadSample("tf_Compute", "R", 10)}
    after = {
        7: ThreadSample("python", "S", 5), 8: ThreadSample("tf_Compute", "R", 10 + TICKS // 2),
        9: ThreadSample("tf_Compute", "S", 99),  # began meanwhile
    }  # fmt: skip
    assert inspector.describe(7, before, after, 0.5) == {
        "pid": 7,
        "state": "S",
        "cpu": 1.0,
        "threads": [
            {"name": "python", "states": {"S": 1}, "cpu": 0.0},
            {"name": "tf_Compute", "states": {"R": 1, "S": 1}, "cpu": 1.0},
        ],
    }
    assert inspector.describe(7, before, {}, 0.5) == {"pid": 7, "state": "", "cpu": 0, "threads": []}


def test_main_processes_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    unix = tmp_path / "net" / "unix"
    unix.touch()
    write_stat(tmp_path / "1", "python3", "S")
    write_stat(tmp_path / "20", "python3", "S", parent=0)  # the inspector itself
    assert inspector.main_processes(tmp_path) == [1]
    write_stat(tmp_path / "12", "python3", "S", parent=1)
    write_stat(tmp_path / "13", "worker", "S", parent=12)
    assert inspector.main_processes(tmp_path) == [12]
    line = "0000000000000000: 00000002 00000000 00010000 0001 01 {} @tfk8s-stacks-{}\n"
    unix.write_text("".join(line.format(pid, pid) for pid in (13, 13, 99)))
    assert inspector.main_processes(tmp_path) == [13]


@linux
def test_process_that_does_not_answer_takes_a_limited_time() -> None:
    listener = StackListener()
    try:
        assert inspector.ask([os.getpid()], timeout=0.05) == {os.getpid(): None}
    finally:
        listener.close()
    assert inspector.ask([os.getpid()]) == {}


@linux
def test_process_without_a_listener_has_no_python_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "SAMPLE_INTERVAL", 0.01)
    (found,) = inspector.inspect([os.getpid()])
    assert (found["state"], found["python"], found["problem"]) == ("R", None, "")
    assert sum(pool["states"].get("R", 0) for pool in found["threads"]) >= 1


@linux
def test_answer_that_is_cut_off_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "SAMPLE_INTERVAL", 0.01)
    monkeypatch.setattr(inspector, "ask", lambda pids, *_: dict.fromkeys(pids, b'{"threads": ['))
    (found,) = inspector.inspect([os.getpid()])
    assert (found["python"], found["problem"]) == (None, "ended while it answered")


THREAD = {"name": "MainThread", "is_main": True, "frames": []}


@pytest.mark.parametrize(("late", "is_same"), [(5, True), (6, False), (None, None)])
def test_call_is_the_same_if_its_key_is(late: int | None, is_same: bool | None) -> None:
    call = {"name": "session.run"}
    first = [{**THREAD, "call": {**call, "key": 5}}, {**THREAD, "call": None}]
    second = [{**THREAD, "call": {**call, **({} if late is None else {"key": late})}}]
    assert inspector.compare(first, second) == [{**THREAD, "call": {**call, "is_same": is_same}}]
