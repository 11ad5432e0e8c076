"""`tfk8s.progress`: the times of its lines, on terminals, in logs and in its file."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.terminal import Terminal
from rich.console import Console

from tfk8s.training import progress
from tfk8s.training.progress import Meter, StatusLine, StreamAbove


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Untouchable:
    """A metric whose value costs something."""

    def __float__(self) -> float:
        raise AssertionError("this metric was read")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """The user's end of a terminal, and the script's."""
    user, script = pty.openpty()
    with open(script, "w") as stream:
        yield user, stream
    os.close(user)


def test_a_log_has_a_line_in_ten_seconds_and_the_last_step(clock: Clock) -> None:
    log = io.StringIO()
    meter = Meter(log, {}, clock)
    for step in range(1, 200):
        meter.report(step, 199, {"loss": 1 / 8})
        clock.now += 0.125
    meter.report(199, 199, {})
    meter.close()
    assert log.getvalue().splitlines() == [
        "tfk8s: step 9/199 (4%), 8 steps/s, 23s left, loss=0.125",
        "tfk8s: step 89/199 (44%), 8 steps/s, 13s left, loss=0.125",
        "tfk8s: step 169/199 (84%), 8 steps/s, 3s left, loss=0.125",
        "tfk8s: step 199/199 (100%), 8 steps/s, loss=0.125",
    ]


def test_the_file_has_the_last_line_and_most_calls_write_nothing(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "worker-0"
    meter = Meter(io.StringIO(), {"TFK8S_PROGRESS": str(path)}, clock)
    meter.report(1, None, {"loss": 2.0})
    assert path.read_text() == "tfk8s: step 1, loss=2"
    clock.now += progress.WRITE_INTERVAL / 2
    meter.report(2, None, {"loss": Untouchable()})
    clock.now += progress.WRITE_INTERVAL / 2
    meter.report(5, None, {"loss": 1.0})
    assert path.read_text() == "tfk8s: step 5, 8 steps/s, loss=1"
    assert [found.name for found in tmp_path.iterdir()] == ["worker-0"]


def test_steps_that_begin_again_have_a_rate_of_their_own(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "worker-0"
    meter = Meter(io.StringIO(), {"TFK8S_PROGRESS": str(path)}, clock)
    for step in (500, 501, 1, 3):
        meter.report(step, 10, {})
        clock.now += 1.0
    assert path.read_text() == "tfk8s: step 3/10 (30%), 2 steps/s, 3s left"


@pytest.mark.parametrize(
    ("step", "total", "message"),
    [
        ("a", None, "tfk8s.progress(): step must be a whole number, not 'a'"),
        (None, None, "tfk8s.progress(): step must be a whole number, not None"),
        (float("nan"), None, "tfk8s.progress(): step must be a whole number, not nan"),
        (1, "x", "tfk8s.progress(): total must be a whole number, not 'x'"),
    ],
)
def test_each_call_refuses_what_is_no_number(step: object, total: object, message: str, clock: Clock) -> None:
    meter = Meter(io.StringIO(), {}, clock)
    meter.report(1, 2, {})
    with pytest.raises(ValueError) as caught:
        meter.report(step, total, {})  # at a time when no line is due
    assert str(caught.value) == message


def test_nothing_ends_a_script(clock: Clock, tmp_path: Path) -> None:
    stream = io.StringIO()
    meter = Meter(stream, {"TFK8S_PROGRESS": str(tmp_path / "gone" / "worker-0")}, clock)
    stream.close()
    meter.report(1, 1, {})
    meter.close()


def test_a_terminal_has_one_line_in_place(clock: Clock, terminal: tuple[int, io.TextIOWrapper]) -> None:
    user, stream = terminal
    meter = Meter(stream, {"TERM": "xterm"}, clock)
    meter.report(1, 3, {})
    clock.now += 0.5
    meter.report(2, 3, {})
    meter.close()
    meter.report(3, 3, {})
    meter.close()
    text = b""
    while not text.endswith(b"4 steps/s\x1b[K\r\r\n"):
        text += os.read(user, 1000)
    assert text.decode().split("\r") == [
        "", "[######--------------] 1/3 (33%)\x1b[K",
        "", "[#############-------] 2/3 (66%), 2 steps/s, 0s left\x1b[K", "", "\n",
        "[####################] 3/3 (100%), 4 steps/s\x1b[K", "", "\n",
    ]  # fmt: skip


def seen(text: str) -> list[str]:
    """Return the lines that a terminal shows after a text, without the spaces at their ends."""
    lines, column = [""], 0
    for part in re.findall(r"\x1b\[K|[\r\n]|[^\x1b\r\n]+", text):
        if part == "\n":
            lines.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        else:
            lines[-1] = lines[-1][:column].ljust(column) + part + lines[-1][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((30, 5)))
    return Terminal()


def test_output_of_a_script_stands_above_the_line(screen: Terminal) -> None:
    line = StatusLine(screen)
    out = StreamAbove(screen, line)
    line.show("[#-] 1/2, a line that is longer than the terminal")
    print("first", 1, file=out)
    assert seen(screen.getvalue()) == ["first 1", "[#-] 1/2, a line that is long"]
    out.writelines(["second\n", "a part"])
    line.show("[##] 2/2")
    assert seen(screen.getvalue()) == ["first 1", "second", "a part"], "the line would hide the part"
    print(" of a line", file=out)
    assert seen(screen.getvalue())[-2:] == ["a part of a line", "[##] 2/2"]
    screen.write("a log that knows nothing of the line\n")
    line.show("[##] 2/2")
    line.close()
    line.close()
    print("last", file=out)
    assert seen(screen.getvalue())[3:] == ["a log that knows nothing of the line", "[##] 2/2", "last", ""]


def test_the_last_step_is_shown_below_a_print_without_an_end(clock: Clock, screen: Terminal) -> None:
    line = StatusLine(screen)
    out = io.TextIOWrapper(io.BytesIO(), line_buffering=True)  # keeps a text without an end
    line.show("[#-] 1/2")
    print("..", end="", file=StreamAbove(out, line))
    line.show("[##] 2/2")
    line.close()
    assert out.buffer.getvalue() == b"..\n"
    assert seen(screen.getvalue()) == ["[##] 2/2", ""]
    line.show("[##] 3/3")
    assert seen(screen.getvalue())[1:] == ["[##] 3/3"]


class AbslHandler(logging.Handler):
    """A handler with another one in it, as absl's."""

    def __init__(self, python_handler: logging.Handler) -> None:
        super().__init__()
        self.python_handler = python_handler

    def emit(self, record: logging.LogRecord) -> None:
        self.python_handler.emit(record)


def test_older_log_handlers_print_above_the_line(
    clock: Clock, screen: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = io.StringIO()
    logger = logging.getLogger("tests.progress")
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(
        logger, "handlers",
        [logging.StreamHandler(), AbslHandler(logging.StreamHandler()), logging.StreamHandler(other)],
    )  # fmt: skip
    meter = Meter(screen, {"TERM": "xterm"}, clock)
    meter.take_streams()
    meter.report(1, 2, {})
    logger.warning("short")
    assert seen(screen.getvalue()) == ["short", "short", "[##########----------] 1/2 (5"]
    assert other.getvalue() == "short\n"


def test_fork_prints_without_the_line(screen: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    line = StatusLine(screen)
    line.show("[#-] 1/2")
    before = screen.getvalue()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert StreamAbove(screen, line).write("text\n") == 5
    assert screen.getvalue() == f"{before}text\n"


@pytest.mark.parametrize(("name", "can"), [(None, True), ("xterm", True), ("dumb", False), ("Unknown", False)])
def test_terminals_whose_lines_can_be_written_again(
    screen: Terminal, monkeypatch: pytest.MonkeyPatch, name: str | None, can: bool
) -> None:
    monkeypatch.delenv("TERM", raising=False)
    if name is not None:
        monkeypatch.setenv("TERM", name)
    assert progress.can_change(screen, os.environ) is can
    assert Console(file=screen).is_dumb_terminal is not can
    assert not progress.can_change(io.StringIO(), os.environ)


def test_only_streams_on_the_terminal_are_taken(
    clock: Clock, terminal: tuple[int, io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, stream = terminal
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", stream)
    Meter(stream, {"TERM": "dumb"}, clock).take_streams()
    assert (sys.stdout, sys.stderr) == (out, stream)
    Meter(stream, {"TERM": "xterm"}, clock).take_streams()
    assert sys.stdout is out
    assert isinstance(sys.stderr, StreamAbove)
    assert sys.stderr.fileno() == stream.fileno()
