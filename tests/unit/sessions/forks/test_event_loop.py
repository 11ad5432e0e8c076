"""The loop of processes that fork, whose callbacks may fail."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tfk8s.sessions.forks import event_loop
from tfk8s.sessions.forks.event_loop import Loop

PAUSE = 0.01


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    monkeypatch.setattr(event_loop, "PAUSE", PAUSE)
    return Loop()


@pytest.fixture
def readable() -> Iterator[socket.socket]:
    """Yield a socket that stays readable."""
    own, theirs = socket.socketpair()
    theirs.sendall(b"a")
    with own, theirs:
        yield own


def failing(loop: Loop, times: int, reason: Callable[[int], str]) -> tuple[list[float], Callable[[], None]]:
    calls: list[float] = []

    def callback() -> None:
        calls.append(time.monotonic())
        if len(calls) > times:
            loop.stop()
        else:
            raise OSError(errno.EMFILE, reason(len(calls)))

    return calls, callback


def test_a_callback_that_fails_again_and_again_does_not_spin(
    loop: Loop, readable: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, callback = failing(loop, 3, lambda _: os.strerror(errno.EMFILE))
    loop.on_readable(readable, callback)
    loop.run()
    assert all(after - before >= PAUSE for before, after in itertools.pairwise(calls))
    assert capsys.readouterr().err.count("Too many open files") == 1


def test_each_new_error_is_logged(loop: Loop, readable: socket.socket, capsys: pytest.CaptureFixture[str]) -> None:
    loop.on_readable(readable, failing(loop, 3, lambda number: f"reason {number // 2}")[1])
    loop.run()
    err = capsys.readouterr().err
    assert (err.count("reason 0"), err.count("reason 1")) == (1, 1)


def test_the_others_go_on_during_a_pause(loop: Loop, readable: socket.socket) -> None:
    loop.on_readable(readable, failing(loop, 10, str)[1])
    with readable.dup() as other:
        calls, callback = failing(loop, 0, str)
        loop.on_readable(other, callback)
        loop.run()
    assert len(calls) == 1


def test_a_paused_source_can_be_forgotten_and_watched_again(loop: Loop, readable: socket.socket) -> None:
    heard: list[str] = []

    def fails() -> None:
        heard.append("fails")
        loop.after(0, again)
        raise OSError

    def again() -> None:
        loop.forget(readable)
        loop.on_readable(readable, works)

    def works() -> None:
        heard.append("works")
        if len(heard) == 2:
            loop.after(2 * PAUSE, loop.stop)  # the end of the pause changes nothing

    loop.on_readable(readable, fails)
    loop.run()
    assert heard[0] == "fails"
    assert set(heard[1:]) == {"works"}


@pytest.mark.parametrize("closes", [False, True])
def test_a_callback_may_forget_its_source_and_fail(loop: Loop, readable: socket.socket, closes: bool) -> None:
    def fails() -> None:
        loop.forget(source)
        if closes:
            source.close()
        loop.after(2 * PAUSE, loop.stop)
        raise OSError

    with readable.dup() as source:
        loop.on_readable(source, fails)
        loop.run()
        if not closes:
            loop.on_readable(source, fails)  # the source is free
