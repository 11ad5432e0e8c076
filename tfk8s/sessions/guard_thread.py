"""A thread that hands events of tasks and Ctrl-C to a guard, and has the guard check calls."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from tfk8s import polling
from tfk8s.log import log
from tfk8s.sessions.task_events import TaskEvent, read_events

if TYPE_CHECKING:
    from tfk8s.task.programs.stacks import StackListener

_PAUSE = 0.1  # seconds after a failure
_left_open: set[int] = set()  # pipes that signals may still be written to


class Guard(Protocol):
    """The part of a guard that the thread uses; `CallGuard` has it."""

    @property
    def check_interval(self) -> float | None:
        """The seconds until the next `check`; None if only an event makes one necessary."""

    def on_event(self, event: TaskEvent) -> None:
        """Take note of a change of a task."""

    def on_interrupt(self) -> None:
        """Take note of Ctrl-C."""

    def check(self, now: float) -> None:
        """End the calls whose time is up."""


class GuardThread(threading.Thread):
    """Runs a guard from `start` until `stop`.

    Args:
        events: a descriptor with lines of `TaskEvent`; None if nobody reports changes.
        stacks: answers requests for the stacks of this process; None if nobody asks.

    Attributes:
        guard: as given.
    """

    def __init__(self, guard: Guard, events: int | None, stacks: StackListener | None = None) -> None:
        super().__init__(name="tfk8s-guard", daemon=True)
        self.guard, self._events, self._stacks = guard, events, stacks
        self._is_over = self._has_signals = False
        self._arrived: deque[TaskEvent] = deque()
        self._trouble = ""  # the last one that was told
        self._wakeup, self._signals = os.pipe()
        os.set_blocking(self._signals, False)

    def run(self) -> None:
        """Wait for events and deadlines."""
        asked = None if self._stacks is None else self._stacks.fileno()
        sources = [source for source in (self._wakeup, self._events, asked) if source is not None]
        while not self._is_over:
            try:
                self._step(sources, asked)
            except Exception as error:  # of any kind: without this thread, calls would wait for lost tasks for ever
                self._tell(repr(error))
                polling.ready([self._wakeup], _PAUSE)

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("a check for calls that wait for lost tasks failed, and is repeated: %s", trouble)
        self._trouble = trouble

    def _step(self, sources: list[int], asked: int | None) -> None:
        """Check, wait for something to do, and do it."""
        self._hand_on()  # what a failure has left
        readable = polling.ready(sources, self._check())
        if self._wakeup in readable and signal.SIGINT in os.read(self._wakeup, 64):
            self.guard.on_interrupt()
        if self._stacks is not None and asked in readable:
            self._stacks.answer()
        if self._events in readable:
            events = read_events(self._events)
            if not events:  # the pipe has ended
                sources.remove(self._events)
            self._arrived.extend(events)
            self._hand_on()

    def _check(self) -> float | None:
        """Check; return the seconds until the next check. Ctrl-C comes through even if each check fails."""
        try:
            self.guard.check(time.monotonic())
        except Exception as error:
            self._tell(repr(error))
            return _PAUSE
        return self.guard.check_interval

    def _hand_on(self) -> None:
        while self._arrived:
            self.guard.on_event(self._arrived.popleft())

    def take_signals(self) -> None:
        """Receive this process' signals from now on, unless an event loop does; works in the main thread only."""
        if threading.current_thread() is threading.main_thread():
            other = signal.set_wakeup_fd(self._signals, warn_on_full_buffer=False)
            self._has_signals = other in (-1, self._signals, *_left_open)
            if not self._has_signals:
                signal.set_wakeup_fd(other)

    def stop(self) -> None:
        """End this thread."""
        self._is_over = True
        os.write(self._signals, b"\0")
        self.join()
        if self._has_signals and threading.current_thread() is not threading.main_thread():
            # Signals are written there until the main thread changes it, and must not be written to another file.
            _left_open.add(self._signals)
            return
        if self._has_signals:
            other = signal.set_wakeup_fd(-1)
            if other != self._signals:
                signal.set_wakeup_fd(other)
        for descriptor in (self._wakeup, self._signals):
            os.close(descriptor)
