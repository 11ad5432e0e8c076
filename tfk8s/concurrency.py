"""A parallel map over threads.

Standard library only: this file also runs in scripts' pods.
"""

from __future__ import annotations

import collections
import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")
_SERVERS_PER_CORE = 8


def servers_at_once(most: int) -> int:
    """Return the number of servers to ask at once, at most `most`.

    Servers on one busy machine that are all asked at once all answer at the same time: too late.
    """
    return min(most, _SERVERS_PER_CORE * (os.cpu_count() or 1))


def map_parallel(function: Callable[[A], B], items: Sequence[A], at_once: int) -> list[B]:
    """Return the result of `function` for each item, in order.

    Ctrl-C ends the call at once: no other item begins, but the running calls continue on their threads. So use this
    function only for calls that change nothing and have a timeout. (The executors of the standard library wait for
    their threads, at the latest when the process ends.)

    Args:
        function: called with each item, on this thread or another.
        at_once: the maximum number of calls at the same time.

    Raises:
        Exception: the exception of `function` for the first item with one. All calls have ended by then.
    """
    left = collections.deque(enumerate(items))
    done: dict[int, B] = {}
    failed: dict[int, Exception] = {}

    def work() -> None:
        while left and not failed:
            try:
                number, item = left.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                done[number] = function(item)
            except Exception as error:
                failed[number] = error

    others = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(items)) - 1)]
    try:
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
    finally:
        left.clear()
    if failed:
        raise failed[min(failed)]
    return [done[number] for number in range(len(items))]
