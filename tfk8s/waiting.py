"""Waiting, in one place: with a limit, and with a word for what is being waited for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tfk8s.errors import WaitTimeout

SHORTEST = 0.005
LONGEST = 0.1

T = TypeVar("T")
Clock = Callable[[], float]
Sleep = Callable[[float], None]


def poll(timeout: float | None, *, clock: Clock = time.monotonic, sleep: Sleep = time.sleep) -> Iterator[float]:
    """Yield when it is time to look: at once, from then on at growing distances, and last when the time is up.

    Yields the seconds left (`math.inf` where `timeout` is None, and there is no end).
    """
    limit = math.inf if timeout is None else timeout
    start = clock()
    waited = 0.0
    while waited < limit:
        yield limit - waited
        waited = clock() - start
        if (rest := limit - waited) <= (next_pause := pause(waited)):
            sleep(max(0.0, rest))
            break
        sleep(next_pause)
        waited = clock() - start
    yield 0.0


def pause(waited: float) -> float:
    """Return how long to wait until the next look: a tenth of the wait so far, within limits.

    So what comes soon is seen at once, and what takes long costs few looks and at most a tenth more.
    """
    return min(max(waited / 10, SHORTEST), LONGEST)


def wait_until(
    look: Callable[[], T | None],
    what: str | Callable[[], str],
    timeout: float,
    *,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> T:
    """Return what `look` returns, as soon as that is something true.

    Args:
        look: looks once; it is called at least once, and a last time when the time is up.
        what: what is being waited for, "… to …"; a function is asked at the end, when it knows what is missing.
        timeout: in seconds.
        clock: for tests.
        sleep: for tests.

    Raises:
        WaitTimeout: it did not come about in time.
    """
    for _ in poll(timeout, clock=clock, sleep=sleep):
        if found := look():
            return found
    raise WaitTimeout(f"waited {timeout:g} s for {what if isinstance(what, str) else what()}")


def changes(look: Callable[[], T], *, clock: Clock = time.monotonic, sleep: Sleep = time.sleep) -> Iterator[T]:
    """Yield what `look` returns, now and again whenever it has changed, for ever."""
    last: T | None = None
    while True:
        for _ in poll(None, clock=clock, sleep=sleep):
            if (found := look()) != last:
                break
        last = found
        yield found
