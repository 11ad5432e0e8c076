"""Processes as /proc and their own answers show them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tfk8s.task.programs import inspector
from tfk8s.task.programs.inspector import Sample
from tfk8s.task.programs.stacks import StackListener

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


def write_stat(folder: Path, name: str, state: str, parent: int = 0, ticks: int = 0) -> None:
    folder.mkdir(parents=True)
    fields = [state, str(parent), *["0"] * 9, str(ticks), "1"]
    (folder / "stat").write_text(f"{folder.name} ({name}) {' '.join(fields)} 0 0\n")


def test_process_with_an_odd_name(tmp_path: Path) -> None:
    write_stat(tmp_path / "7", "python) S (", "R", parent=3, ticks=4)
    assert inspector.sample(7, tmp_path) == Sample("R", 5, 3)
    assert inspector.sample(9, tmp_path) == Sample("", 0, 0)


@pytest.mark.parametrize(("ticks", "computes"), [(0, False), (10_000, True)])
def test_process_that_uses_a_cpu_computes(monkeypatch: pytest.MonkeyPatch, ticks: int, computes: bool) -> None:
    samples = iter([Sample("S", 5, 1), Sample("S", 5 + ticks, 1)])
    monkeypatch.setattr(inspector, "SAMPLE_INTERVAL", 0.01)
    monkeypatch.setattr(inspector, "sample", lambda pid: next(samples))
    assert inspector.inspect([2**22 + 1])[0]["computes"] is computes  # no process has this id


def test_main_processes_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    unix = tmp_path / "net" / "unix"
    unix.touch()
    write_stat(tmp_path / "1", "python3", "S")
    write_stat(tmp_path / "20", "python3", "S", parent=0)  # the inspector itself
    assert inspector.main_processes(tmp_path) == [1]
    write_stat(tmp_path / "9", "python3", "S", parent=1)
    (tmp_path / "9" / "cmdline").write_bytes(b"python3\0-P\0-m\0tfk8s.features.metrics.pod\x002222\0")
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
