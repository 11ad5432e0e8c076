"""The same for several things at a time, on threads. Standard library only: this file also runs in scripts' pods."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def map_parallel(do: Callable[[A], B], things: Sequence[A], at_once: int) -> list[B]:
    """Return what `do` returns for each thing, in their order.

    Ctrl-C ends the wait for them, and no other is begun; those that were go on by themselves. So this is for what
    only looks, and has a limit of its own. (The standard library's executors wait for theirs, at the latest when the
    process ends.)

    Args:
        do: is called with each thing, on this thread or another.
        things: any number of them.
        at_once: for how many at the same time.

    Raises:
        Exception: what `do` raised, for the first of those for which it did; the others were not begun, or have ended.
    """
    left = collections.deque(enumerate(things))
    done: dict[int, B] = {}
    failed: dict[int, Exception] = {}

    def work() -> None:
        while left and not failed:
            try:
                number, thing = left.popleft()
            except IndexError:  # another was quicker
                return
            try:
                done[number] = do(thing)
            except Exception as error:
                failed[number] = error

    others = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(things)) - 1)]
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
    return [done[number] for number in range(len(things))]
