"""The log of a script in a warm pod: its lines, and its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfk8s.sessions.pod import end_line
from tfk8s.sessions.warm import script_log
from tfk8s.sessions.warm.script_log import ScriptLog

ALL: dict[str, Any] = {"tail": None, "since": None, "follow": False}


def lines(path: Path, **options: Any) -> list[str]:
    """Return the lines of a log without their times."""
    text = b"".join(script_log.blocks(path, {**ALL, **options}, lambda: True)).decode()
    return [line.partition(" ")[2] for line in text.removesuffix("\n").split("\n") if line]


def test_both_streams_are_cut_into_lines_and_have_an_end(tmp_path: Path) -> None:
    log = ScriptLog(tmp_path / "log")
    for block, is_error in ((b"one\ntw", False), (b"er", True), (b"o\n\n", False), (b"ror\nrest", True)):
        log.add(block, is_error=is_error)
    assert lines(tmp_path / "log") == ["one", "two", "", "\x1eerror"]
    log.end(3, "note")
    *_, output, error = lines(tmp_path / "log")
    assert end_line.read_end(output) == ("", 3, "note")
    assert end_line.read_end(error) == ("\x1erest", 3, "note")


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    log = ScriptLog(tmp_path / "log")
    for _ in range(3):
        log.add(b"x" * script_log.MAX_LINE, is_error=False)
    assert lines(tmp_path / "log") == ["x" * script_log.MAX_LINE] * 2
    log.end(0, "")


def test_two_files_of_limited_size_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_log, "MAX_BYTES", 1000)
    log = ScriptLog(tmp_path / "log")
    for number in range(200):
        log.add(b"%d\n" % number, is_error=False)
    found = lines(tmp_path / "log")
    assert found == [str(number) for number in range(200 - len(found), 200)]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2200
    assert lines(tmp_path / "log", tail=2) == ["198", "199"]
    log.end(0, "")


def test_a_follower_loses_no_line_when_the_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_log, "MAX_BYTES", 100)
    log, numbers = ScriptLog(tmp_path / "log"), iter(range(50))

    def go_on() -> bool:
        number = next(numbers, None)
        if number is not None:
            log.add(b"%d\n" % number, is_error=False)
        return number is not None

    text = b"".join(script_log.blocks(tmp_path / "log", {**ALL, "follow": True}, go_on))
    assert [line.split()[1] for line in text.splitlines()] == [b"%d" % number for number in range(50)]
    log.end(0, "")


def test_a_script_goes_on_without_a_log(tmp_path: Path) -> None:
    log = ScriptLog(tmp_path / "none/log")
    log.add(b"line\n", is_error=False)
    log.end(0, "")
    assert lines(tmp_path / "none/log") == []
