"""Which calls are ended, and when; real calls of real sessions are in tests/local."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
from types import SimpleNamespace

import pytest

from tfk8s.errors import BackendUnreachable, Tfk8sError
from tfk8s.sessions import active_calls, call_guard
from tfk8s.sessions.call_guard import ScriptWatch, SessionWatch
from tfk8s.sessions.lost_tasks import LostTasks

LOST = {"task": "worker/1", "reason": "killed by SIGKILL"}


class Ended(Exception):
    """The process would have ended."""


class Scene:
    """A watch without a thread, whose calls, clock and end are the test's."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        answers: bool = False,
        another: bool = False,
        script: bool = True,
        trouble: Tfk8sError | None = None,
    ) -> None:
        def say(what: bool) -> bool:
            if trouble:
                raise trouble
            return what

        self.active: dict[object, object] = {}
        monkeypatch.setattr(signal, "set_wakeup_fd", lambda *_, **__: -1)
        monkeypatch.setattr(active_calls, "active_calls", lambda: self.active)
        monkeypatch.setattr(call_guard.time, "monotonic", lambda: 100.0)
        self.said: list[str] = []
        view = SimpleNamespace(
            master="master/0", without={"worker/3"}, answers=lambda _: say(answers), is_another=lambda _: say(another)
        )
        self.news = LostTasks()
        self.ended: list[str] = []  # for which reason calls were
        what = (self.news, view, self.said.append)
        self.watch = ScriptWatch(None, *what, self._end) if script else SessionWatch(None, *what, self.ended.append)

    def _end(self, code: int) -> None:
        raise Ended(code)

    def call(
        self,
        *,
        needs: tuple[str, ...] = (),
        without: tuple[str, ...] = (),
        opens: bool = False,
        patience: float = 3.0,
        worked: float = math.inf,
    ) -> None:
        session = SimpleNamespace(_tfk8s_worked=worked)
        self.active[sys._getframe()] = SimpleNamespace(
            opens=opens, patience=patience, without=without, needs=lambda task: task in needs, session=session
        )

    def lose(self, task: str, reason: str = LOST["reason"], **more: bool) -> None:
        read, write = os.pipe()
        os.write(write, json.dumps({"task": task, "reason": reason, **more}).encode() + b"\n")
        assert self.watch._read_events(read)
        os.close(read)
        os.close(write)

    def look(self, now: float) -> None:
        self.watch.look(self.active, now)


@pytest.mark.parametrize("task", ["master/0", "worker/1"])
def test_a_call_that_needs_the_lost_task_is_ended_after_a_while(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    scene = Scene(monkeypatch)
    scene.call(needs=("worker/1",))
    scene.lose(task)
    scene.look(102.9)
    with pytest.raises(Ended, match="3"):
        scene.look(103.1)
    assert scene.said[0] == f"tfk8s: {task} was lost: killed by SIGKILL"
    assert scene.said[1].startswith(
        f"error: {task} was lost: killed by SIGKILL; a session waited for it, and the script"
    )


def test_a_call_goes_on_where_its_task_was_silent_only(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.call(needs=("worker/1",))
    scene.lose("worker/1")
    scene.lose("worker/1", "")
    scene.look(1000.0)
    assert scene.said[-1] == "tfk8s: worker/1 answers again, and goes on"
    assert not scene.news.lost_now


def test_a_call_that_does_without_the_lost_task_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.call(needs=("worker/0",))
    scene.lose("worker/1")
    for now in (103.1, 110.0, 1000.0):
        scene.look(now)
    scene.lose("worker/0")
    with pytest.raises(Ended):
        scene.look(1001.0)


def test_a_call_that_ends_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.call(needs=("worker/1",))
    scene.lose("worker/1")
    scene.active.clear()
    scene.look(101.0)
    scene.call(needs=("worker/1",))
    scene.look(103.1)  # another call now, with time of its own


@pytest.mark.parametrize("opens", [False, True])
def test_a_call_that_began_later_goes_on_if_the_task_answers_again(
    monkeypatch: pytest.MonkeyPatch, opens: bool
) -> None:
    scene = Scene(monkeypatch, answers=True)
    scene.lose("worker/1")
    scene.call(needs=("worker/1",), opens=opens)
    scene.look(101.0)
    scene.look(104.1)
    assert not scene.news.lost_now
    scene.look(1000.0)


def test_a_session_that_opens_goes_on_if_the_task_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, answers=True)
    scene.call(opens=True)
    scene.lose("worker/1")
    scene.look(104.1)
    assert not scene.news.lost_now


def test_that_a_task_goes_on_saves_no_calls_that_wait_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.call(needs=("worker/0", "worker/1"))
    scene.lose("worker/0")
    scene.lose("worker/1")
    scene.lose("worker/1", "")
    with pytest.raises(Ended):
        scene.look(103.1)


@pytest.mark.parametrize(("another", "worked"), [(False, 99.0), (True, 101.0), (True, math.inf)])
def test_a_session_that_may_be_a_new_one_goes_on(monkeypatch: pytest.MonkeyPatch, another: bool, worked: float) -> None:
    scene = Scene(monkeypatch, answers=True, another=another)
    scene.lose("master/0")
    scene.call(worked=worked)
    for now in (101.0, 104.1, 1000.0):
        scene.look(now)


def test_a_session_of_a_master_of_before_is_lost_though_another_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, answers=True, another=True)
    scene.lose("master/0")
    scene.call(worked=99.0)
    scene.look(101.0)
    with pytest.raises(Ended, match="3"):
        scene.look(104.1)


@pytest.mark.parametrize("opens", [False, True])
def test_a_call_that_began_later_is_ended_if_the_task_stays_away(monkeypatch: pytest.MonkeyPatch, opens: bool) -> None:
    scene = Scene(monkeypatch)
    scene.lose("worker/1")
    scene.call(needs=() if opens else ("worker/1",), opens=opens)
    scene.look(101.0)
    with pytest.raises(Ended):
        scene.look(104.1)


@pytest.mark.parametrize("worked", [99.0, math.inf])
def test_a_call_is_ended_where_the_way_to_the_lost_task_is_broken_too(
    monkeypatch: pytest.MonkeyPatch, worked: float
) -> None:
    scene = Scene(monkeypatch, trouble=BackendUnreachable("the API server does not answer"))
    scene.lose("worker/1")
    scene.call(needs=("worker/1",), worked=worked)
    scene.look(101.0)
    with pytest.raises(Ended):
        scene.look(104.1)


def test_a_task_that_is_left_out_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.call(needs=("worker/3",))
    scene.lose("worker/3")
    scene.look(1000.0)
    assert scene.said == []


def test_ctrl_c_closes_the_session_and_then_ends_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.default_int_handler)
    scene, closed = Scene(monkeypatch), threading.Event()
    scene.call()
    (call,) = scene.active.values()
    call.session = SimpleNamespace(close=closed.set)
    scene.watch._interrupt()
    scene.look(100.9)
    assert not closed.is_set()
    scene.look(101.1)
    assert closed.wait(60)
    scene.look(103.0)
    with pytest.raises(Ended, match="130"):
        scene.look(103.2)


def test_a_later_ctrl_c_closes_the_session_first_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.default_int_handler)
    scene, closed = Scene(monkeypatch), threading.Semaphore(0)
    for _ in range(2):
        scene.call()
        (call,) = scene.active.values()
        call.session = SimpleNamespace(close=closed.release)
        scene.watch._interrupt()
        scene.look(101.1)
        assert closed.acquire(timeout=60)
        scene.active.clear()
        scene.look(101.2)


def test_ctrl_c_is_left_to_a_script_that_handles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: print)
    scene = Scene(monkeypatch)
    scene.call()
    scene.watch._interrupt()
    for now in (101.1, 103.2, 1000.0):
        scene.look(now)
    assert scene.said == [
        "tfk8s: the script handles Ctrl-C itself, when the session's call ends; again ends the script"
    ]


# ---- where calls alone are ended -----------------------------------------------------------------------------------


def test_calls_that_wait_for_a_lost_task_are_ended_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, script=False)
    scene.call(needs=("worker/1",))
    scene.lose("worker/1")
    for now in (100.9, 101.1, 101.9, 102.1):
        scene.look(now)
    assert scene.ended == ["worker/1 was lost: killed by SIGKILL"] * 2
    assert scene.said == ["tfk8s: worker/1 was lost: killed by SIGKILL"]


def test_a_session_that_opens_is_given_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, script=False)
    scene.call(opens=True)
    scene.lose("worker/1")
    scene.look(108.9)
    assert scene.ended == []
    scene.look(109.1)
    assert len(scene.ended) == 1


def test_who_tells_of_tasks_no_more_is_not_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    events, end = os.pipe()
    os.close(end)
    told = SessionWatch(events, LostTasks(), SimpleNamespace(without=()), print, print)
    listened: list[list[int]] = []

    def ready(descriptors: list[int], _: float | None) -> set[int]:
        listened.append(list(descriptors))
        told._over = len(listened) == 2
        return {events} if events in descriptors else set()

    monkeypatch.setattr(call_guard.polling, "ready", ready)
    told.run()
    assert listened == [[told._signals, events], [told._signals]]
    for descriptor in (events, told._signals, told._wakeup):
        os.close(descriptor)


def test_a_session_that_leaves_the_lost_task_out_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, script=False)
    scene.call(opens=True, without=("worker/1",))
    scene.lose("worker/1")
    scene.look(1000.0)
    assert scene.ended == []


def test_another_task_in_the_place_of_a_lost_one_does_not_save_the_calls_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch, answers=True, script=False)
    scene.call(needs=("worker/1",))
    scene.lose("worker/1")
    scene.lose("worker/1", "", anew=True)
    scene.look(101.1)
    assert len(scene.ended) == 1


def test_ctrl_c_ends_the_calls_and_the_session_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.default_int_handler)
    scene = Scene(monkeypatch, script=False)
    scene.call()
    scene.watch._interrupt()
    for now in (100.9, 101.1, 102.1):
        scene.look(now)
    assert scene.ended == ["interrupted"]


def test_it_listens_to_signals_where_nobody_else_does() -> None:
    told = SessionWatch(None, LostTasks(), SimpleNamespace(without=()), print, print)
    told.start()
    read, other = os.pipe()
    os.set_blocking(other, False)
    before = signal.set_wakeup_fd(-1)
    try:
        told.listen()
        assert signal.set_wakeup_fd(other) == told._wakeup
        told.listen()
        told.stop()
        assert signal.set_wakeup_fd(before) == other
    finally:
        signal.set_wakeup_fd(before)
    for descriptor in (read, other):
        os.close(descriptor)


def test_one_that_another_thread_stops_leaves_signals_no_other_file() -> None:
    before = signal.set_wakeup_fd(-1)
    watches = [SessionWatch(None, LostTasks(), SimpleNamespace(without=()), print, print) for _ in range(2)]
    try:
        for told in watches:
            told.start()
        watches[0].listen()
        stopping = threading.Thread(target=watches[0].stop)
        stopping.start()
        stopping.join(20)
        os.fstat(watches[0]._wakeup)
        watches[1].listen()
        assert signal.set_wakeup_fd(watches[1]._wakeup) == watches[1]._wakeup
        watches[1].stop()
        assert signal.set_wakeup_fd(before) == -1
    finally:
        signal.set_wakeup_fd(before)
    call_guard._left.remove(watches[0]._wakeup)
    for descriptor in (watches[0]._signals, watches[0]._wakeup):
        os.close(descriptor)


def test_one_that_another_thread_stops_and_that_heard_no_signals_leaves_nothing() -> None:
    told = SessionWatch(None, LostTasks(), SimpleNamespace(without=()), print, print)
    told.start()
    stopping = threading.Thread(target=told.stop)
    stopping.start()
    stopping.join(20)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(told._wakeup)
