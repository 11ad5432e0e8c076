"""Ends TensorFlow calls that would hang: calls that wait for a lost task, and calls that ignore Ctrl-C.

TensorFlow itself reports most losses within a second, and scripts may handle its errors. But a call waits for ever for
a dead master, for a machine that is gone, or for a session to open. And a call in C++ does not react to Ctrl-C. So a
guard checks the calls that wait when a task is lost, and those that begin later. It ends a call that needs the lost
task and still waits some seconds later.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from tfk8s.core.programs import INTERRUPTED
from tfk8s.errors import Tfk8sError
from tfk8s.log import log
from tfk8s.sessions import active_calls, patch
from tfk8s.sessions.active_calls import AnyCall
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.eager.silent_workers import SilentWorkers
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.task_events import TaskChange, TaskEvent, lost
from tfk8s.sessions.timing import TIMING, Timing

TASK_FAILED = 3


class Ending(Protocol):
    """A way to end calls."""

    def timeout(self, call: AnyCall) -> float:
        """Return how many seconds to give a call after a loss."""

    def end(self, event: TaskEvent) -> None:
        """End the calls that wait for a lost task."""

    def interrupt(self, calls: Collection[AnyCall], attempt: int) -> bool:
        """End calls after Ctrl-C; return whether a next attempt would make sense."""


class ExitScript:
    """Ends the script, since nothing else ends a call on a direct connection.

    Args:
        exit_process: ends this process with an exit code.
    """

    def __init__(self, exit_process: Callable[[int], NoReturn]) -> None:
        self._exit = exit_process

    def timeout(self, call: AnyCall) -> float:
        """Return the call's own timeout."""
        return call.timeout

    def end(self, event: TaskEvent) -> None:
        """End the script, with the reason."""
        text = f"error: {event}; a call waited for it, and the script was ended\n{_HELP}"
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - for the script's user
        self._exit(TASK_FAILED)

    def interrupt(self, calls: Collection[AnyCall], attempt: int) -> bool:
        """Close the sessions, which ends their calls; end the script at the second attempt."""
        if attempt:
            self._exit(INTERRUPTED)
        for call in calls:
            threading.Thread(target=_close, args=[call.session], daemon=True).start()
        return True


class AbortCalls:
    """Aborts all calls that pass a forward; TensorFlow raises an error, and their sessions continue.

    Args:
        abort: aborts the calls, with a reason.
    """

    def __init__(self, abort: Callable[[str], object], timing: Timing = TIMING) -> None:
        self._abort, self._timing = abort, timing

    def timeout(self, call: AnyCall) -> float:
        """Return a short time: an aborted call costs no more than TensorFlow's own report of the loss."""
        return self._timing.opening_timeout if call.opens else self._timing.abort_timeout

    def end(self, event: TaskEvent) -> None:
        """Abort the calls, with the loss as the reason."""
        self._abort(str(event))

    def interrupt(self, calls: Collection[AnyCall], attempt: int) -> bool:
        """Abort the calls."""
        del calls, attempt
        self._abort("interrupted")
        return False


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A call that may wait for a lost task.

    Attributes:
        due: the time at which the call is ended if it still waits.
        is_older: the call began before the loss.
    """

    due: float
    is_older: bool


class CallGuard:
    """The rule for calls: which of them to end, and when.

    Args:
        losses: where losses are noted.
        view: the tasks, to ask a lost task whether it answers again.
        ending: the way to end calls.
        active: returns the calls that wait now, each with a key of its own.
        notify: takes messages for the user.
        timing, clock: for tests.
    """

    def __init__(
        self,
        losses: LostTasks,
        view: ClusterView,
        ending: Ending,
        *,
        active: Callable[[], Mapping[Hashable, AnyCall]] = active_calls.active_calls,
        notify: Callable[[str], object] = log.warning,
        timing: Timing = TIMING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._losses, self._view, self._ending, self._active = losses, view, ending, active
        self._notify, self._timing, self._clock = notify, timing, clock
        self._workers = SilentWorkers(losses, lambda task: _is_true(view.answers, task), notify, ending.end, timing)
        self._suspicions: dict[tuple[Hashable, str], Suspicion] = {}
        self._lost_at: dict[str, float] = {}
        self._interrupted: Collection[Hashable] = ()
        self._interrupt_due, self._attempt = 0.0, 0

    @property
    def check_interval(self) -> float | None:
        """The seconds until the next `check`; None while no call has to be checked."""
        return self._timing.check_interval if self._is_alert else None

    @property
    def _is_alert(self) -> bool:
        return bool(self._suspicions or self._interrupted or self._losses.lost_now)

    def on_event(self, event: TaskEvent) -> None:
        """Take note of a change of a task."""
        if event.task in self._view.without:
            return
        self._workers.on_event(event, self._clock())
        if event.change is TaskChange.LOST:
            self._losses.lost(event.task, event.reason)
            now = self._lost_at[event.task] = self._clock()
            for key, call in self._active().items():
                self._suspicions[key, event.task] = Suspicion(now + self._ending.timeout(call), is_older=True)
        elif event.change is TaskChange.BACK:  # calls that need the task go on
            self._losses.back(event.task)
            self._suspicions = {key: call for key, call in self._suspicions.items() if key[1] != event.task}
        elif event.change is TaskChange.REPLACED:  # counts as lost until a call needs it
            self._losses.replaced(event.task)
            return
        self._notify(str(event))

    def check(self, now: float) -> None:
        """End the calls whose time is up."""
        if not self._is_alert:  # reading the stacks of threads that run is not safe in CPython 3.11
            return
        self._workers.check(now)
        active = self._active()
        for task in self._losses.lost_now:
            for key, call in active.items():
                due = now + self._ending.timeout(call)
                self._suspicions.setdefault((key, task), Suspicion(due, is_older=False))
        for (key, task), suspicion in list(self._suspicions.items()):
            if key not in active:
                del self._suspicions[key, task]
            elif now >= suspicion.due:
                self._judge(key, active[key], task, suspicion)
        self._check_interrupted(active, now)

    def _judge(self, key: Hashable, call: AnyCall, task: str, suspicion: Suspicion) -> None:
        # A call that opens a session, or began after the loss, continues as soon as the task answers.
        can_continue = call.opens or not (suspicion.is_older or self._session_is_older(call, task))
        if can_continue and _is_true(self._view.answers, task):
            self._losses.back(task)
            del self._suspicions[key, task]
            return
        if self._needs(call, task):
            self._ending.end(lost(task, self._losses.reasons()[task]))
            due = suspicion.due + self._ending.timeout(call)
        else:
            due = math.inf
        self._suspicions[key, task] = Suspicion(due, suspicion.is_older)

    def _needs(self, call: AnyCall, task: str) -> bool:
        return bool(active_calls.needed_tasks(call, [task], self._view))

    def _session_is_older(self, call: AnyCall, task: str) -> bool:
        """Return whether a call's session was opened before the task was replaced, so that the session is lost.

        TensorFlow reports this when it has the task's new address, which may take half a minute.
        """
        return patch.last_success(call.session) < self._lost_at[task] and _is_true(self._view.is_replaced, task)

    # ---- Ctrl-C ----

    def on_interrupt(self) -> None:
        """Give the calls that wait a moment to end; then Python runs the script's handler."""
        self._interrupted = {key for key, call in self._active().items() if not call.is_background}
        self._interrupt_due, self._attempt = self._clock() + self._timing.interrupt_timeout, 0

    def _check_interrupted(self, active: Mapping[Hashable, AnyCall], now: float) -> None:
        self._interrupted = active.keys() & self._interrupted
        if not self._interrupted or now < self._interrupt_due:
            return
        if not ends_calls(signal.getsignal(signal.SIGINT)):
            self._notify("the script handles Ctrl-C after the session's call; press Ctrl-C again to end the script")
            self._interrupted = ()
        elif self._ending.interrupt([active[key] for key in self._interrupted], self._attempt):
            self._attempt, self._interrupt_due = self._attempt + 1, now + self._timing.close_timeout
        else:
            self._interrupted = ()


_HELP = (
    "  = help: lost tasks are restarted: run the script again, or let `tfk8s submit --retries 3` do it; "
    "tfk8s.session(recover=…) goes on from a checkpoint"
)


def ends_calls(handler: object) -> bool:
    """Return whether a handler of Ctrl-C wants the call to end: Python's, or a notebook's in a cell with `await`."""
    return handler is signal.default_int_handler or getattr(handler, "__module__", "").startswith("ipykernel.")


def _is_true(probe: Callable[[str], bool], task: str) -> bool:
    """Return the answer of a probe; False if no task can be reached."""
    try:
        return probe(task)
    except Tfk8sError:
        return False


def _close(session: Any) -> None:
    """Close a session, which ends its call: TensorFlow cancels the step. Closing hangs if a task is frozen."""
    with contextlib.suppress(Exception):  # only the end of the call counts
        session.close()
