"""The same for several things at a time."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s import concurrency

PATIENCE = 20.0


@given(st.lists(st.integers()), st.integers(1, 5))
def test_results_are_in_order(things: list[int], at_once: int) -> None:
    assert concurrency.map_parallel(lambda thing: thing + 1, things, at_once) == [thing + 1 for thing in things]


def test_calls_are_concurrent() -> None:
    meeting = threading.Barrier(3)
    concurrency.map_parallel(lambda _: meeting.wait(PATIENCE), range(6), 3)


def test_concurrency_is_limited() -> None:
    busy, most, lock = 0, 0, threading.Lock()

    def do(_: int) -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        with lock:
            busy -= 1

    concurrency.map_parallel(do, range(50), 3)
    assert most <= 3


def test_a_failure_cancels_the_rest() -> None:
    begun: list[int] = []

    def do(thing: int) -> None:
        begun.append(thing)
        raise ValueError(thing)

    with pytest.raises(ValueError, match="0"):
        concurrency.map_parallel(do, range(100), 1)
    assert begun == [0]


def test_the_first_failure_in_order_is_raised() -> None:
    meeting = threading.Barrier(2)

    def do(thing: int) -> None:
        meeting.wait(PATIENCE)
        raise ValueError(thing)

    with pytest.raises(ValueError, match="0"):
        concurrency.map_parallel(do, range(2), 2)


def test_an_interrupt_ends_the_call_at_once() -> None:
    begun: list[int] = []
    first, goes_on = threading.Event(), threading.Event()

    def do(thing: int) -> None:
        begun.append(thing)
        if threading.current_thread() is threading.main_thread():
            first.wait(PATIENCE)
            raise KeyboardInterrupt
        first.set()
        goes_on.wait(PATIENCE)

    with pytest.raises(KeyboardInterrupt):
        concurrency.map_parallel(do, range(100), 2)
    goes_on.set()
    assert len(begun) == 2
