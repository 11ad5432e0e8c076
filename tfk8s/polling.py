"""Waiting, in one place: with a limit, and with a word for what is being waited for.

Ctrl-C ends every wait here, as it raises KeyboardInterrupt. What waits elsewhere is an event loop, which waits for
whatever comes next, or one blocking call of the system's with a limit of its own.
"""

from __future__ import annotations

import math
import random
import select
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tfk8s.errors import BackendUnreachable, WaitTimeout
from tfk8s.log import log

SHORTEST = 0.005
LONGEST = 0.1
TELL_SECONDS = 2.0  # after so many the user hears of it
FIRST_RETRY = 0.1
LAST_RETRY = 2.0

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
    announce: bool = False,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> T:
    """Return what `look` returns, as soon as that is something true.

    Args:
        look: looks once; it is called at least once, and a last time when the time is up.
        what: what is being waited for, "… to …"; a function is asked when it is to be told, and knows what is missing.
        timeout: in seconds.
        announce: log what is being waited for after `TELL_SECONDS`, and again whenever that changes.
        clock: for tests.
        sleep: for tests.

    Raises:
        WaitTimeout: it did not come about in time. What runs the cluster may be silent meanwhile.
        BackendUnreachable: it was silent at the first look.
    """
    silent: BackendUnreachable | None = None
    told = ""
    for number, left in enumerate(poll(timeout, clock=clock, sleep=sleep)):
        try:
            if found := look():
                return found
            silent = None
        except BackendUnreachable as error:
            if number == 0:
                raise
            silent = error
        if announce and timeout - left >= TELL_SECONDS and (now := _words(what)) != told:
            log.warning("waiting for %s", now)
            told = now
    if silent is not None:
        raise WaitTimeout(f"waited {timeout:g} s: {silent}", help=silent.help) from silent
    raise WaitTimeout(f"waited {timeout:g} s for {_words(what)}")


def _words(what: str | Callable[[], str]) -> str:
    return what if isinstance(what, str) else what()


def readable(descriptor: int, timeout: float) -> bool:
    """Wait until a descriptor can be read, or has ended, for so many seconds; return whether it came to that.

    One of a process (`os.pidfd_open`) can be read when the process has ended.
    """
    return bool(ready([descriptor], timeout))


def ready(descriptors: Iterable[int], timeout: float | None) -> set[int]:
    """Wait until some of several descriptors can be read, or have ended, for so many seconds or ever; return which."""
    poll = select.poll()  # `select.select` knows no descriptor above 1023, which a user's program may well have
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(None if timeout is None else 1000 * timeout)}


def rest(seconds: float) -> None:
    """Wait so long, whatever happens."""
    time.sleep(seconds)


class Retries:
    """When to try again what failed: soon, then at growing distances, never the same for two that failed at once.

    Args:
        patience: for how many seconds from now.
        clock, sleep, jitter: for tests.
    """

    def __init__(
        self,
        patience: float,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._sleep, self._jitter = clock, sleep, jitter
        self._end = clock() + patience
        self._pause = FIRST_RETRY

    @property
    def left(self) -> float:
        """How many seconds are left."""
        return max(0.0, self._end - self._clock())

    def wait(self, at_least: float = 0.0) -> bool:
        """Wait until the next try, `at_least` so many seconds; return False, at once, where there is no time for it."""
        seconds = max(at_least, self._pause * (0.5 + self._jitter() / 2))
        if seconds > self.left:
            return False
        self._pause = min(2 * self._pause, LAST_RETRY)
        self._sleep(seconds)
        return True


def every(seconds: float, *, sleep: Sleep = time.sleep) -> Iterator[None]:
    """Yield when it is time to look: now, and again so many seconds after each look, for ever."""
    while True:
        yield
        sleep(seconds)


def changes(look: Callable[[], T], *, clock: Clock = time.monotonic, sleep: Sleep = time.sleep) -> Iterator[T]:
    """Yield what `look` returns, now and again whenever it has changed, for ever."""
    last: T | None = None
    while True:
        for _ in poll(None, clock=clock, sleep=sleep):
            if (found := look()) != last:
                break
        last = found
        yield found
