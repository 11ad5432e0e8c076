"""`tfk8s.progress`: the times of its lines, on terminals, in logs and in its file."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfk8s.training import progress
from tfk8s.training.progress import Meter


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
    while not text.endswith(b"4 steps/s\x1b[K\r\n"):
        text += os.read(user, 1000)
    assert text.decode().split("\r") == [
        "", "tfk8s: step 1/3 (33%)\x1b[K", "tfk8s: step 2/3 (66%), 2 steps/s, 0s left\x1b[K", "\n",
        "tfk8s: step 3/3 (100%), 4 steps/s\x1b[K", "\n",
    ]  # fmt: skip
