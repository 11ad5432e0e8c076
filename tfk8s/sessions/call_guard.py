"""Ends calls that would wait for ever, for a task that was lost, or deaf to Ctrl-C; of a script, the script itself.

TensorFlow itself reports most losses within a second, and what a script does then is its own business. But a call waits
for ever for a dead master, for a machine that is gone, or for a session to open; and in C++ it does not hear Ctrl-C. So
a thread beside the sessions looks at the calls that were under way when a task was lost, and at those that begin later.
One that needs the lost task and is still the very same call some seconds later has no hope.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import threading
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tfk8s import polling
from tfk8s.errors import Tfk8sError
from tfk8s.sessions import active_calls, patch
from tfk8s.sessions.active_calls import Call
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.preflight import ClusterView

TASK_FAILED = 3
INTERRUPTED = 130
INTERRUPT_SECONDS = 1.0
CLOSE_SECONDS = 2.0
_LOOK_SECONDS = 0.25

_left: set[int] = set()  # where signals may go still, though nobody hears them

Say = Callable[[str], object]
End = Callable[[int], NoReturn]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """That a call waits for a lost task.

    Attributes:
        due: when it is certain, if the call is still under way then.
        was_under_way: the call was there before the loss.
    """

    due: float
    was_under_way: bool


class CallGuard(threading.Thread):
    """Hears of lost tasks and of Ctrl-C.

    Args:
        events: a descriptor with a line of JSON for each change of a task, as `Losses.news`; None where nobody tells.
        news: where to note it.
        cluster: the tasks, and whom to ask whether one answers again.
        say: writes a line for the user.
    """

    def __init__(self, events: int | None, news: LostTasks, cluster: ClusterView, say: Say) -> None:
        super().__init__(name="tfk8s-watch", daemon=True)
        self._events, self._news, self._cluster, self._say = events, news, cluster, say
        self._suspicions: dict[tuple[types.FrameType, str], Suspicion] = {}
        self._lost_at: dict[str, float] = {}
        self._interrupted: dict[types.FrameType, Call] = {}
        self._interrupt_due = 0.0
        self._over = self._listens = False
        self._signals, self._wakeup = os.pipe()
        os.set_blocking(self._wakeup, False)
        if events is not None:
            news.expect()

    def run(self) -> None:
        """Wait for news and deadlines, until `stop`."""
        sources = [self._signals] if self._events is None else [self._signals, self._events]
        while not self._over:
            readable = polling.ready(sources, _LOOK_SECONDS if self._is_alert() else None)
            if self._signals in readable and signal.SIGINT in os.read(self._signals, 64):
                self._interrupt()
            if self._events in readable and not self._read_events(self._events):
                sources.remove(self._events)
            self.look(active_calls.active_calls(), time.monotonic())

    def listen(self) -> None:
        """Hear of this process' signals from now on, where nobody else does; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            other = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
            self._listens = other in (-1, self._wakeup, *_left)
            if not self._listens:  # an event loop's
                signal.set_wakeup_fd(other)

    def stop(self) -> None:
        """End this thread."""
        self._over = True
        os.write(self._wakeup, b"\0")
        self.join()
        if threading.current_thread() is threading.main_thread():
            other = signal.set_wakeup_fd(-1)
            if other != self._wakeup:
                signal.set_wakeup_fd(other)
        elif self._listens:  # signals go there until the main thread says otherwise, and must not reach another file
            _left.add(self._wakeup)
            return
        for descriptor in (self._signals, self._wakeup):
            os.close(descriptor)

    def _patience(self, call: Call) -> float:
        """Return how many seconds to give a call after a loss."""
        return call.patience

    def _give_up(self, task: str) -> None:
        """End the calls that wait for a lost task."""
        raise NotImplementedError

    def _break_off(self, now: float) -> None:
        """End the calls that Ctrl-C is to end."""
        raise NotImplementedError

    def _is_alert(self) -> bool:
        return bool(self._suspicions or self._interrupted or self._news.lost_now)

    def _read_events(self, events: int) -> bool:
        """Take in news of tasks; return whether more can come."""
        data = os.read(events, 1 << 16)
        for line in data.splitlines():
            change = json.loads(line)
            if change["task"] in self._cluster.without:
                continue
            if change["reason"]:
                self._lost(change["task"], change["reason"])
            elif not change.get("anew"):  # another one is judged when a call needs it
                self._goes_on(change["task"])
        return bool(data)

    def _goes_on(self, task: str) -> None:
        """Note that a task was silent only, and is as it was: calls that need it go on."""
        self._news.back(task)
        self._say(f"tfk8s: {task} answers again, and goes on")
        self._suspicions = {key: kept for key, kept in self._suspicions.items() if key[1] != task}

    def _lost(self, task: str, reason: str) -> None:
        self._news.lost(task, reason)
        self._say(f"tfk8s: {task} was lost: {reason}")
        now = self._lost_at[task] = time.monotonic()
        for frame, call in active_calls.active_calls().items():
            self._suspicions[frame, task] = Suspicion(now + self._patience(call), was_under_way=True)

    def look(self, active: Mapping[types.FrameType, Call], now: float) -> None:
        """Judge the calls that are under way at a time."""
        for task in self._news.lost_now:
            for frame, call in active.items():
                self._suspicions.setdefault((frame, task), Suspicion(now + self._patience(call), was_under_way=False))
        for (frame, task), suspicion in list(self._suspicions.items()):
            if frame not in active:
                del self._suspicions[frame, task]
            elif now >= suspicion.due:
                self._judge(frame, active[frame], task, suspicion)
        self._look_at_interrupted(active, now)

    def _judge(self, frame: types.FrameType, call: Call, task: str, suspicion: Suspicion) -> None:
        # One that opens a session, or began after the loss, goes on as soon as the task answers.
        may_go_on = call.opens or not (suspicion.was_under_way or self._is_of_before(call, task))
        if may_go_on and _is_so(self._cluster.answers, task):
            self._news.back(task)
            del self._suspicions[frame, task]
            return
        does_without = task in call.without or not (call.opens or task == self._cluster.master or call.needs(task))
        if not does_without:
            self._give_up(task)
        due = math.inf if does_without else suspicion.due + self._patience(call)
        self._suspicions[frame, task] = Suspicion(due, suspicion.was_under_way)

    def _is_of_before(self, call: Call, task: str) -> bool:
        """Return whether a call's session was opened on a task that is another one now, so that it is lost.

        TensorFlow tells so when it has found the task's new address, which may take half a minute.
        """
        return patch.worked_last(call.session) < self._lost_at[task] and _is_so(self._cluster.is_another, task)

    # ---- Ctrl-C ----

    def _interrupt(self) -> None:
        """Give the calls that are under way a moment to end; then Python runs the script's handler."""
        self._interrupted = active_calls.active_calls()
        self._interrupt_due = time.monotonic() + INTERRUPT_SECONDS

    def _look_at_interrupted(self, active: Mapping[types.FrameType, Call], now: float) -> None:
        self._interrupted = {frame: call for frame, call in self._interrupted.items() if frame in active}
        if not self._interrupted or now < self._interrupt_due:
            return
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._break_off(now)
        else:
            self._say("tfk8s: the script handles Ctrl-C itself, when the session's call ends; again ends the script")
            self._interrupted = {}


class ScriptWatch(CallGuard):
    """Ends the script.

    Args:
        events, news, cluster, say: as for `Watch`.
        end: ends the process with an exit code.
    """

    def __init__(self, events: int | None, news: LostTasks, cluster: ClusterView, say: Say, end: End) -> None:
        super().__init__(events, news, cluster, say)
        self._end = end
        self._closed = False
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)

    def _give_up(self, task: str) -> None:
        reason = self._news.reasons()[task]
        self._say(f"error: {task} was lost: {reason}; a session waited for it, and the script was ended\n{_HELP}")
        self._end(TASK_FAILED)

    def _interrupt(self) -> None:
        super()._interrupt()
        self._closed = False

    def _break_off(self, now: float) -> None:
        """Close the sessions, by which their calls end; end the script where that does not help."""
        if self._closed:
            self._end(INTERRUPTED)
        self._closed, self._interrupt_due = True, now + CLOSE_SECONDS
        for call in self._interrupted.values():
            threading.Thread(target=_close, args=[call.session], daemon=True).start()


class SessionWatch(CallGuard):
    """Ends calls alone, so that TensorFlow raises an error and their sessions go on: for notebooks and the like.

    Args:
        events, news, cluster, say: as for `Watch`.
        end_calls: ends all that wait for an answer of the master's, for a reason.
    """

    def __init__(
        self, events: int | None, news: LostTasks, cluster: ClusterView, say: Say, end_calls: Callable[[str], object]
    ) -> None:
        super().__init__(events, news, cluster, say)
        self._end_calls = end_calls

    def _patience(self, call: Call) -> float:
        """Return little: to be ended costs a call no more than TensorFlow's own report of the loss would."""
        return active_calls.OPENING_PATIENCE if call.opens else active_calls.LEAST_PATIENCE

    def _give_up(self, task: str) -> None:
        self._end_calls(f"{task} was lost: {self._news.reasons()[task]}")

    def _break_off(self, now: float) -> None:
        del now
        self._end_calls("interrupted")
        self._interrupted = {}


_HELP = (
    "  = help: lost tasks are started again: run the script once more, or let `tfk8s submit --retries 3` do it; "
    "tfk8s.session(recover=…) goes on from a checkpoint"
)


def _is_so(ask: Callable[[str], bool], task: str) -> bool:
    """Return what is asked about a task; where the way to it is broken, no."""
    try:
        return ask(task)
    except Tfk8sError:
        return False


def _close(session: Any) -> None:
    """Close a session, by which its call ends: TensorFlow cancels the step. It hangs where a task is frozen."""
    with contextlib.suppress(Exception):  # the call ends, or it does not: that is what counts
        session.close()
