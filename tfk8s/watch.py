"""Ends a script where it would wait for ever: for a task that was lost, or deaf to Ctrl-C.

TensorFlow itself reports most losses within a second, and what a script does then is its own business. But a call waits
for ever for a dead master, for a machine that is gone, or for a session to open; and in C++ it does not hear Ctrl-C. So
a thread beside the script looks at the calls that were under way when a task was lost, and at those that begin later.
One that needs the lost task and is still the very same call some seconds later has no hope.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import threading
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tfk8s import calls, constraints
from tfk8s.calls import Call
from tfk8s.news import News
from tfk8s.preflight import View

TASK_FAILED = 3
INTERRUPTED = 130
INTERRUPT_SECONDS = 1.0
CLOSE_SECONDS = 2.0
_LOOK_SECONDS = 0.25

Say = Callable[[str], None]
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


class Watch(threading.Thread):
    """Hears of lost tasks and of Ctrl-C.

    Args:
        events: a descriptor with a line of JSON for each task that was lost, {"task": …, "reason": …}, or with an
            empty reason goes on as it was; None where nobody tells.
        news: where to note it.
        cluster: the tasks, and whom to ask whether one answers again.
        say: writes a line for the user.
        end: ends the process with an exit code.
    """

    def __init__(self, events: int | None, news: News, cluster: View, say: Say, end: End) -> None:
        super().__init__(name="tfk8s-watch", daemon=True)
        self._events, self._news, self._cluster, self._say, self._end = events, news, cluster, say, end
        self._suspicions: dict[tuple[types.FrameType, str], Suspicion] = {}
        self._lost_at: dict[str, float] = {}
        self._interrupted: dict[types.FrameType, Call] = {}
        self._interrupt_due = 0.0
        self._closed = False
        self._signals, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        if events is not None:
            news.expect()

    def run(self) -> None:
        """Wait for news and deadlines, for as long as the process lives."""
        sources = [self._signals] if self._events is None else [self._signals, self._events]
        while True:
            readable, _, _ = select.select(sources, [], [], _LOOK_SECONDS if self._is_alert() else None)
            if self._signals in readable and signal.SIGINT in os.read(self._signals, 64):
                self._interrupt()
            if self._events in readable and not self._read_events(self._events):
                sources.remove(self._events)
            self.look(calls.under_way(), time.monotonic())

    def _is_alert(self) -> bool:
        return bool(self._suspicions or self._interrupted or self._news.lost_now)

    def _read_events(self, events: int) -> bool:
        """Take in news of tasks; return whether more can come."""
        data = os.read(events, 1 << 16)
        for line in data.splitlines():
            change = json.loads(line)
            if change["task"] not in self._cluster.without:
                self._lost(change["task"], change["reason"]) if change["reason"] else self._goes_on(change["task"])
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
        for frame, call in calls.under_way().items():
            self._suspicions[frame, task] = Suspicion(now + call.patience, was_under_way=True)

    def look(self, active: Mapping[types.FrameType, Call], now: float) -> None:
        """Judge the calls that are under way at a time."""
        for task in self._news.lost_now:
            for frame, call in active.items():
                self._suspicions.setdefault((frame, task), Suspicion(now + call.patience, was_under_way=False))
        for (frame, task), suspicion in list(self._suspicions.items()):
            if frame not in active:
                del self._suspicions[frame, task]
            elif now >= suspicion.due:
                self._judge(frame, active[frame], task, suspicion)
        self._look_at_interrupted(active, now)

    def _judge(self, frame: types.FrameType, call: Call, task: str, suspicion: Suspicion) -> None:
        # One that opens a session, or began after the loss, goes on as soon as the task answers.
        may_go_on = call.opens or not (suspicion.was_under_way or self._is_of_before(call, task))
        if may_go_on and self._cluster.answers(task):
            self._news.back(task)
            del self._suspicions[frame, task]
            return
        if call.opens or task == self._cluster.master or call.needs(task):
            reason = self._news.reasons()[task]
            self._say(f"error: {task} was lost: {reason}; a session waited for it, and the script was ended\n{_HELP}")
            self._end(TASK_FAILED)
        self._suspicions[frame, task] = Suspicion(math.inf, was_under_way=False)  # it does without that task

    def _is_of_before(self, call: Call, task: str) -> bool:
        """Return whether a call's session was opened on a task that is another one now, so that it is lost.

        TensorFlow tells so when it has found the task's new address, which may take half a minute.
        """
        return constraints.worked_last(call.session) < self._lost_at[task] and self._cluster.is_another(task)

    # ---- Ctrl-C ----

    def _interrupt(self) -> None:
        """Give the calls that are under way a moment to end; then Python runs the script's handler."""
        self._interrupted = calls.under_way()
        self._closed = False
        self._interrupt_due = time.monotonic() + INTERRUPT_SECONDS

    def _look_at_interrupted(self, active: Mapping[types.FrameType, Call], now: float) -> None:
        self._interrupted = {frame: call for frame, call in self._interrupted.items() if frame in active}
        if not self._interrupted or now < self._interrupt_due:
            return
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            self._say("tfk8s: the script handles Ctrl-C itself, when the session's call ends; again ends the script")
            self._interrupted = {}
        elif not self._closed:
            self._closed, self._interrupt_due = True, now + CLOSE_SECONDS
            for call in self._interrupted.values():
                threading.Thread(target=_close, args=[call.session], daemon=True).start()
        else:
            self._end(INTERRUPTED)


_HELP = (
    "  = help: lost tasks are started again: run the script once more, or let `tfk8s submit --retries 3` do it; "
    "tfk8s.session(recover=…) goes on from a checkpoint"
)


def _close(session: Any) -> None:
    """Close a session, by which its call ends: TensorFlow cancels the step. It hangs where a task is frozen."""
    with contextlib.suppress(Exception):  # the call ends, or it does not: that is what counts
        session.close()
