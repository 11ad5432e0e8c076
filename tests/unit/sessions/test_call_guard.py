"""The rule for calls; real calls of real sessions are in tests/local."""

from __future__ import annotations

import math
import signal
import sys
import threading
from types import SimpleNamespace

import pytest

from tfk8s.errors import BackendUnreachable, Tfk8sError
from tfk8s.sessions.call_guard import AbortCalls, CallGuard, ExitScript
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.task_events import TaskChange, TaskEvent, lost, refused

WORKER_LOST = lost("worker/1", "killed by SIGKILL")
WORKER_BACK = TaskEvent("worker/1", TaskChange.BACK)


class Ended(Exception):
    """The process would have ended."""


class Scene:
    """A guard at the time 100, with calls of the test.

    Attributes:
        active: the calls.
        messages: for the user.
        aborted: the reasons of aborted calls.
    """

    def __init__(
        self,
        *,
        answers: bool = False,
        replaced: bool = False,
        exits: bool = True,
        trouble: Tfk8sError | None = None,
    ) -> None:
        def probe(answer: bool) -> bool:
            if trouble:
                raise trouble
            return answer

        self.active: dict[object, object] = {}
        self.messages: list[str] = []
        self.aborted: list[str] = []
        self.losses = LostTasks()
        view = SimpleNamespace(
            master="master/0",
            without={"worker/3"},
            task_at=lambda target: {"grpc://w0:1": "worker/0"}.get(target, ""),
            answers=lambda _: probe(answers),
            is_replaced=lambda _: probe(replaced),
        )
        self.guard = CallGuard(
            self.losses,
            view,
            ExitScript(self._end) if exits else AbortCalls(self.aborted.append),
            active=lambda: self.active,
            notify=self.messages.append,
            clock=lambda: 100.0,
        )
        self.on_event, self.check = self.guard.on_event, self.guard.check

    def _end(self, code: int) -> None:
        raise Ended(code)

    def call(
        self,
        *,
        needs: tuple[str, ...] = (),
        without: tuple[str, ...] = (),
        opens: bool = False,
        session: object = None,
        target: str = "",
    ) -> None:
        self.active[sys._getframe()] = SimpleNamespace(
            opens=opens, timeout=3.0, leaves_out=lambda task: task in without,
            needed=lambda tasks: [task for task in tasks if task in needs], session=session,
            master=lambda view: view.task_at(target) or view.master, is_background=False,
        )  # fmt: skip


def session(last_success: float) -> SimpleNamespace:
    return SimpleNamespace(_tfk8s_last_success=last_success)


@pytest.fixture(autouse=True)
def _default_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.default_int_handler)


@pytest.mark.parametrize("task", ["master/0", "worker/1"])
def test_call_that_needs_a_lost_task_ends_the_script(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene()
    scene.call(needs=("worker/1",))
    scene.on_event(lost(task, "killed by SIGKILL"))
    scene.check(102.9)
    with pytest.raises(Ended, match="3"):
        scene.check(103.1)
    assert scene.messages == [f"{task} was lost: killed by SIGKILL"]
    assert capsys.readouterr().err == (
        f"error: {task} was lost: killed by SIGKILL; a call waited for it, and the script was ended\n"
        "  = help: lost tasks are restarted: run the script again, or let `tfk8s submit --retries 3` do it; "
        "tfk8s.session(recover=…) goes on from a checkpoint\n"
    )


def test_no_stack_is_read_while_all_is_well() -> None:
    read: list[float] = []
    view = SimpleNamespace(master="master/0", without=set())
    guard = CallGuard(LostTasks(), view, AbortCalls(print), active=lambda: read.append(1) or {}, notify=print)
    guard.check(100.0)
    assert read == []
    guard.on_event(WORKER_LOST)
    guard.check(100.0)
    assert read


def test_call_continues_if_its_task_was_only_silent() -> None:
    scene = Scene()
    scene.call(needs=("worker/1",))
    scene.on_event(WORKER_LOST)
    scene.on_event(WORKER_BACK)
    scene.check(1000.0)
    assert scene.messages == ["worker/1 was lost: killed by SIGKILL", "worker/1 answers again"]
    assert not scene.losses.lost_now


def test_call_that_does_not_need_the_lost_task_continues() -> None:
    scene = Scene()
    scene.call(needs=("worker/0",))
    scene.on_event(WORKER_LOST)
    for now in (103.1, 110.0, 1000.0):
        scene.check(now)
    scene.on_event(lost("worker/0", "evicted"))
    with pytest.raises(Ended):
        scene.check(1001.0)


@pytest.mark.parametrize(("target", "task"), [("grpc://w0:1", "worker/0"), ("grpc://127.0.0.1:41873", "master/0")])
def test_call_needs_the_task_that_its_session_connects_to(target: str, task: str) -> None:
    others = {"worker/0", "master/0"} - {task}
    scene = Scene()
    scene.call(target=target)
    scene.on_event(lost(others.pop(), "evicted"))
    scene.check(1000.0)
    scene.on_event(lost(task, "evicted"))
    with pytest.raises(Ended):
        scene.check(1001.0)


def test_later_call_has_its_own_time() -> None:
    scene = Scene()
    scene.call(needs=("worker/1",))
    scene.on_event(WORKER_LOST)
    scene.active.clear()
    scene.check(101.0)
    scene.call(needs=("worker/1",))
    scene.check(103.1)


@pytest.mark.parametrize("opens", [False, True])
def test_later_call_continues_if_the_task_answers(opens: bool) -> None:
    scene = Scene(answers=True)
    scene.on_event(WORKER_LOST)
    scene.call(needs=("worker/1",), opens=opens)
    scene.check(101.0)
    scene.check(104.1)
    assert not scene.losses.lost_now
    scene.check(1000.0)


def test_opening_session_continues_if_the_task_answers() -> None:
    scene = Scene(answers=True)
    scene.call(opens=True)
    scene.on_event(WORKER_LOST)
    scene.check(104.1)
    assert not scene.losses.lost_now


def test_return_of_one_task_does_not_save_calls_that_wait_for_another() -> None:
    scene = Scene()
    scene.call(needs=("worker/0", "worker/1"))
    scene.on_event(lost("worker/0", "evicted"))
    scene.on_event(WORKER_LOST)
    scene.on_event(WORKER_BACK)
    with pytest.raises(Ended):
        scene.check(103.1)


@pytest.mark.parametrize(("replaced", "last_success"), [(False, 99.0), (True, 101.0), (True, math.inf)])
def test_session_that_may_be_a_new_one_continues(replaced: bool, last_success: float) -> None:
    scene = Scene(answers=True, replaced=replaced)
    scene.on_event(lost("master/0", "evicted"))
    scene.call(session=session(last_success))
    for now in (101.0, 104.1, 1000.0):
        scene.check(now)


def test_session_of_a_replaced_master_ends_the_script() -> None:
    scene = Scene(answers=True, replaced=True)
    scene.on_event(lost("master/0", "evicted"))
    scene.call(session=session(99.0))
    scene.check(101.0)
    with pytest.raises(Ended, match="3"):
        scene.check(104.1)


@pytest.mark.parametrize("opens", [False, True])
def test_later_call_ends_the_script_if_the_task_stays_lost(opens: bool) -> None:
    scene = Scene()
    scene.on_event(WORKER_LOST)
    scene.call(needs=() if opens else ("worker/1",), opens=opens)
    scene.check(101.0)
    with pytest.raises(Ended):
        scene.check(104.1)


@pytest.mark.parametrize("last_success", [99.0, math.inf])
def test_call_ends_the_script_if_no_task_can_be_probed(last_success: float) -> None:
    scene = Scene(trouble=BackendUnreachable("the API server does not answer"))
    scene.on_event(WORKER_LOST)
    scene.call(needs=("worker/1",), session=session(last_success))
    scene.check(101.0)
    with pytest.raises(Ended):
        scene.check(104.1)


def test_excluded_task_may_be_lost() -> None:
    scene = Scene()
    scene.call(needs=("worker/3",))
    scene.on_event(lost("worker/3", "evicted"))
    scene.check(1000.0)
    assert scene.messages == []


def test_ctrl_c_closes_the_session_then_ends_the_script() -> None:
    scene, closed = Scene(), threading.Event()
    scene.call(session=SimpleNamespace(close=closed.set))
    scene.guard.on_interrupt()
    scene.check(100.9)
    assert not closed.is_set()
    scene.check(101.1)
    assert closed.wait(60)
    scene.check(103.0)
    with pytest.raises(Ended, match="130"):
        scene.check(103.2)


def test_second_ctrl_c_closes_the_next_session_first() -> None:
    scene, closed = Scene(), threading.Semaphore(0)
    for _ in range(2):
        scene.call(session=SimpleNamespace(close=closed.release))
        scene.guard.on_interrupt()
        scene.check(101.1)
        assert closed.acquire(timeout=60)
        scene.active.clear()
        scene.check(101.2)


def test_ctrl_c_ends_the_call_of_a_notebook_s_cell_with_await(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: SimpleNamespace(__module__="ipykernel.ipkernel"))
    scene, closed = Scene(), threading.Event()
    scene.call(session=SimpleNamespace(close=closed.set))
    scene.guard.on_interrupt()
    scene.check(101.1)
    assert closed.wait(60)


def test_ctrl_c_is_left_to_a_script_with_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: print)
    scene = Scene()
    scene.call()
    scene.guard.on_interrupt()
    for now in (101.1, 103.2, 1000.0):
        scene.check(now)
    assert scene.messages == [
        "the script handles Ctrl-C after the session's call; press Ctrl-C again to end the script"
    ]


# ---- calls that are aborted ----------------------------------------------------------------------------------------


def test_calls_that_need_a_lost_task_are_aborted_repeatedly() -> None:
    scene = Scene(exits=False)
    scene.call(needs=("worker/1",))
    scene.on_event(WORKER_LOST)
    for now in (100.9, 101.1, 101.9, 102.1):
        scene.check(now)
    assert scene.aborted == ["worker/1 was lost: killed by SIGKILL"] * 2
    assert scene.messages == ["worker/1 was lost: killed by SIGKILL"]


def test_opening_session_has_more_time() -> None:
    scene = Scene(exits=False)
    scene.call(opens=True)
    scene.on_event(WORKER_LOST)
    scene.check(108.9)
    assert scene.aborted == []
    scene.check(109.1)
    assert len(scene.aborted) == 1


def test_session_that_excludes_the_lost_task_continues() -> None:
    scene = Scene(exits=False)
    scene.call(opens=True, without=("worker/1",))
    scene.on_event(WORKER_LOST)
    scene.check(1000.0)
    assert scene.aborted == []


def test_replaced_task_does_not_save_earlier_calls() -> None:
    scene = Scene(answers=True, exits=False)
    scene.call(needs=("worker/1",))
    scene.on_event(WORKER_LOST)
    scene.on_event(TaskEvent("worker/1", TaskChange.REPLACED))
    scene.check(101.1)
    assert len(scene.aborted) == 1


def test_a_refused_connection_is_told_and_ends_nothing() -> None:
    scene = Scene(exits=False)
    scene.call()
    scene.on_event(refused("a.example stays out of reach"))
    scene.check(200.0)
    assert scene.messages == ["a.example stays out of reach"]
    assert scene.aborted == []


def test_ctrl_c_aborts_calls_once() -> None:
    scene = Scene(exits=False)
    scene.call()
    scene.guard.on_interrupt()
    for now in (100.9, 101.1, 102.1):
        scene.check(now)
    assert scene.aborted == ["interrupted"]
