"""The end of a script after Ctrl-C; real scripts are in tests/local."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tfk8s.sessions.call_guard import AbortCalls
from tfk8s.sessions.forks import script_guard
from tfk8s.sessions.forks.script_guard import ScriptGuard
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.timing import with_grace


class Ended(Exception):
    """The process would have ended."""


class Scene:
    """A guard at the time 100 after Ctrl-C, in a script with these handlers of SIGINT and SIGTERM.

    Attributes:
        messages: for the user.
        sent: the signals that the guard sent to the process.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, interrupt: object, terminate: object, **variables: str) -> None:
        self.messages: list[str] = []
        self.sent: list[int] = []
        handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate}
        monkeypatch.setattr(signal, "getsignal", handlers.get)
        monkeypatch.setattr(os, "kill", lambda _, number: self.sent.append(number))
        monkeypatch.setattr(threading, "Timer", lambda *_: SimpleNamespace(start=lambda: None))
        view = SimpleNamespace(master="master/0", without=set())
        self.guard = ScriptGuard(
            self._end, LostTasks(), view, AbortCalls(print), active=dict, notify=self.messages.append,
            clock=lambda: 100.0, timing=with_grace(variables),
        )  # fmt: skip
        assert self.guard.check_interval is None
        self.guard.on_interrupt()

    def _end(self, code: int) -> None:
        raise Ended(code)

    def ends_at(self, now: float) -> bool:
        try:
            self.guard.check(now)
        except Ended as end:
            return end.args == (130,)
        return False


@pytest.fixture
def waiting() -> Callable[[], None]:
    """A thread that Python would wait for; the function ends it."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="reader")
    thread.start()
    yield end.set
    end.set()
    thread.join()


def test_a_script_ends_some_time_after_ctrl_c(monkeypatch: pytest.MonkeyPatch, waiting: Callable[[], None]) -> None:
    scene = Scene(monkeypatch, signal.default_int_handler, signal.SIG_DFL)
    assert [scene.ends_at(now) for now in (101.9, 102, 114.9, 115)] == [False, False, False, True]
    assert scene.messages == [
        'waiting for the script\'s thread "reader" to end; Ctrl-C again ends it at once, else it ends in 13 s'
    ]
    assert scene.sent == []


def test_a_script_that_catches_sigterm_may_save_something(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, signal.default_int_handler, lambda *_: None)
    assert [scene.ends_at(now) for now in (103, 115, 116.9, 117)] == [False, False, False, True]
    assert scene.sent == [signal.SIGTERM]
    assert scene.messages[0].startswith("waiting for the script to end; ")


def test_a_script_has_the_grace_of_its_job_file(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, signal.default_int_handler, lambda *_: None, TFK8S_GRACE="30")
    assert [scene.ends_at(now) for now in (129.9, 130, 159.9, 160)] == [False, False, False, True]
    assert scene.sent == [signal.SIGTERM]
    scene = Scene(monkeypatch, signal.default_int_handler, signal.SIG_DFL, TFK8S_GRACE="1")
    assert [scene.ends_at(now) for now in (103.9, 104)] == [False, True], "its calls may end first"


def test_the_second_ctrl_c_ends_a_script_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, signal.default_int_handler, signal.SIG_DFL)
    with pytest.raises(Ended):
        scene.guard.on_interrupt()


def test_a_script_with_a_handler_of_its_own_ends_when_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, lambda *_: None, signal.SIG_DFL)
    scene.guard.on_interrupt()
    assert not scene.ends_at(1000)
    assert scene.messages == []


@pytest.mark.parametrize(
    ("names", "text"),
    [([], "the script"), ("a", 'the script\'s thread "a"'), ("abcd", 'the script\'s threads "a", "b", "c" and 1 more')],
)
def test_names_of_threads(names: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [SimpleNamespace(name=name, daemon=False) for name in names]
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread(), *threads])
    assert script_guard._threads() == text
