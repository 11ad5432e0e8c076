"""Signals for scripts that run as forks."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.escalation import catches_sigterm, forwarded_signals
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.sessions.forks.forked_scripts import ForkedScripts, RunningScript

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """The signals that the handler of before has got."""
    numbers: list[int] = []
    before = {number: signal.signal(number, lambda number, _: numbers.append(number)) for number in (INT, TERM)}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def raised(*numbers: int) -> list[int]:
    """Raise signals; return those that a script got."""
    sent: list[int] = []
    with forwarded_signals(lambda number: sent.append(number) or True):  # type: ignore[func-returns-value]
        for number in numbers:
            signal.raise_signal(number)
    return sent


def test_a_script_that_is_ended_twice_gets_one_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after SIGKILL of its `run`, whose end is also that of the cluster."""
    sent: list[int] = []
    monkeypatch.setattr(processes, "kill_group", lambda _, number: sent.append(number))
    nothing: Any = None
    forked, connection = ForkedScripts[RunningScript](Loop(), nothing, grace=30), socket.socket()
    with connection:
        script = RunningScript(connection=connection, command="a.py", progress=Path("none"), pid=1)
        forked.add(script)
        forked.end(script)
        forked.end(script)
    assert sent == [TERM]


@pytest.mark.parametrize(
    ("numbers", "expected"), [((INT, INT, INT), [INT, TERM, KILL]), ((TERM, INT), [TERM, TERM]), ((TERM,), [TERM])]
)
def test_each_signal_is_stronger(numbers: tuple[int, ...], expected: list[int], handled: list[int]) -> None:
    assert raised(*numbers) == expected
    assert handled == []


def test_a_signal_after_the_last_ends_the_command(handled: list[int]) -> None:
    assert raised(INT, INT, INT, TERM) == [INT, TERM, KILL]
    assert handled == [TERM]


def test_a_signal_that_no_script_can_get_ends_the_command(handled: list[int]) -> None:
    with forwarded_signals(lambda _: False):
        signal.raise_signal(TERM)
    assert handled == [TERM]
    signal.raise_signal(INT)
    assert handled == [TERM, INT], "the handlers are restored"


def test_a_handler_of_sigterm_is_seen_from_outside() -> None:
    before = signal.signal(TERM, signal.SIG_IGN)
    assert not catches_sigterm(os.getpid())
    signal.signal(TERM, lambda *_: None)
    assert catches_sigterm(os.getpid())
    signal.signal(TERM, before)
    assert not catches_sigterm(2**22 + 1), "no process has this id (proc(5), pid_max)"
