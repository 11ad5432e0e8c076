"""The thread of a guard: events, signals, and its end."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfk8s.sessions.guard_thread import GuardThread
from tfk8s.sessions.task_events import TaskEvent, lost
from tfk8s.task.programs import inspector
from tfk8s.task.programs.stacks import StackListener

EVENT = lost("worker/1", "evicted")


class Guard:
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.check_interval: float | None = None

    def on_event(self, event: TaskEvent) -> None:
        self.calls.put(event)

    def on_interrupt(self) -> None:
        self.calls.put("interrupt")

    def check(self, now: float) -> None:
        self.calls.put("check")

    def next(self) -> object:
        return self.calls.get(timeout=20)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Restore the descriptor for signals."""
    before = signal.set_wakeup_fd(-1)
    yield
    signal.set_wakeup_fd(before)


def signal_descriptor() -> int:
    """Return the descriptor that receives this process' signals."""
    descriptor = signal.set_wakeup_fd(-1)
    if descriptor != -1:
        signal.set_wakeup_fd(descriptor)
    return descriptor


def started(guard: Guard | None = None, events: int | None = None) -> GuardThread:
    thread = GuardThread(guard or Guard(), events)
    thread.start()
    return thread


def stop_on_another_thread(thread: GuardThread) -> None:
    stopping = threading.Thread(target=thread.stop)
    stopping.start()
    stopping.join(20)


def test_events_reach_the_guard_until_the_pipe_ends() -> None:
    read, write = os.pipe()
    guard = Guard()
    thread = started(guard, read)
    assert guard.next() == "check"
    os.write(write, 2 * EVENT.to_line())
    assert [guard.next() for _ in range(3)] == [EVENT, EVENT, "check"]
    os.close(write)
    assert guard.next() == "check"
    thread.stop()
    assert guard.calls.empty(), "it does not poll a pipe that has ended"
    os.close(read)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract sockets")
def test_thread_answers_requests_for_stacks() -> None:
    listener = StackListener()
    thread = GuardThread(Guard(), None, listener)
    thread.start()
    answer = inspector.ask([os.getpid()], timeout=60)[os.getpid()]
    thread.stop()
    listener.close()
    assert "MainThread" in [found["name"] for found in json.loads(answer or b"")["threads"]]


def test_guard_sets_the_interval() -> None:
    guard = Guard()
    guard.check_interval = 0.001
    thread = started(guard)
    assert [guard.next() for _ in range(3)] == ["check"] * 3
    thread.stop()


class Failing(Guard):
    """A guard whose checks fail."""

    def check(self, now: float) -> None:
        super().check(now)
        raise KeyError("ps/0")


@pytest.mark.parametrize("kind", [Guard, Failing])
def test_ctrl_c_reaches_the_guard(kind: type[Guard]) -> None:
    guard = kind()
    thread = started(guard)
    assert guard.next() == "check"
    thread.take_signals()
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        signal.raise_signal(signal.SIGINT)
        assert next(call for call in iter(guard.next, None) if call != "check") == "interrupt"
    finally:
        signal.signal(signal.SIGINT, before)
    thread.stop()
    assert signal_descriptor() == -1


def test_wakeup_descriptor_of_an_event_loop_is_kept() -> None:
    read, other = os.pipe()
    os.set_blocking(other, False)
    thread = started()
    thread.take_signals()
    assert signal.set_wakeup_fd(other) != -1
    thread.take_signals()
    thread.stop()
    assert signal.set_wakeup_fd(-1) == other
    for descriptor in (read, other):
        os.close(descriptor)


def test_stop_on_another_thread_keeps_the_descriptor_of_signals_open() -> None:
    first, second = started(), started()
    first.take_signals()
    descriptor = signal_descriptor()
    stop_on_another_thread(first)
    os.fstat(descriptor)  # else signals would be written to another file
    second.take_signals()
    assert signal_descriptor() not in (-1, descriptor)
    second.stop()
    assert signal_descriptor() == -1


def test_stop_on_another_thread_without_signals_closes_all() -> None:
    before = set(Path("/proc/self/fd").iterdir())
    stop_on_another_thread(started())
    assert set(Path("/proc/self/fd").iterdir()) <= before


def test_a_guard_that_fails_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Guard):
        """Fails at its first event and at its first check."""

        failures = 2

        def fail(self) -> None:
            if self.failures:
                self.failures -= 1
                raise KeyError("ps/0")

        def on_event(self, event: TaskEvent) -> None:
            self.fail()
            super().on_event(event)

        def check(self, now: float) -> None:
            self.fail()
            super().check(now)

    source, sink = os.pipe()
    guard = Failing()
    os.write(sink, EVENT.to_line() * 2)
    thread = started(guard, source)
    found = [guard.next()]
    while EVENT not in found:
        found.append(guard.next())
    thread.stop()
    assert caplog.messages == [
        "a check for calls that wait for lost tasks failed, and is repeated: KeyError('ps/0')"
    ], "once for both"
    for descriptor in (source, sink):
        os.close(descriptor)
