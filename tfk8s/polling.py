"""Waits with a timeout, polling, and retries.

Ctrl-C ends every wait here with a KeyboardInterrupt. Outside of this module, only event loops and blocking system calls
with a timeout wait.
"""

from __future__ import annotations

import math
import random
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tfk8s.errors import BackendUnreachable, WaitTimeout
from tfk8s.log import log

MIN_INTERVAL = 0.005
MAX_INTERVAL = 0.1
TELL_SECONDS = 2.0  # of a wait until it is logged
FIRST_RETRY_INTERVAL = 0.1
MAX_RETRY_INTERVAL = 2.0

T = TypeVar("T")
Clock = Callable[[], float]
Timeout = float | Callable[[], float]
Sleep = Callable[[float], None]


def poll(
    timeout: Timeout | None,
    *,
    least_interval: float = MIN_INTERVAL,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Iterator[float]:
    """Yield at once, then at growing intervals, and a last time when the timeout is over.

    Args:
        timeout: in seconds, or a function that returns the timeout, which may grow; None means no end.
        least_interval: in seconds, for polls that cost much.
        sleep: for tests.

    Yields:
        The seconds left, `math.inf` without a timeout.
    """
    start, waited = clock(), 0.0
    is_last = _seconds(timeout) <= 0
    while True:
        limit = _seconds(timeout)
        yield 0.0 if is_last else limit - waited
        if is_last and _seconds(timeout) <= limit:
            return
        waited = clock() - start
        rest, next_pause = _seconds(timeout) - waited, max(least_interval, pause(waited))
        sleep(max(0.0, min(rest, next_pause)))
        waited = clock() - start
        is_last = rest <= next_pause or waited >= _seconds(timeout)


def _seconds(timeout: Timeout | None) -> float:
    if timeout is None:
        return math.inf
    return timeout() if callable(timeout) else timeout


class TimeoutWithoutChange:
    """A timeout that begins again with each change, for a wait that takes longer if there is more to do.

    Args:
        seconds: the timeout after a change.
    """

    def __init__(self, seconds: float, *, clock: Clock = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._start, self._timeout = clock(), seconds
        self._state: object = None

    def __call__(self) -> float:
        """Return the timeout in seconds, counted from the start of the wait."""
        return self._timeout

    def note(self, state: object, more: float = 0.0) -> None:
        """Note the state now; another state than before is a change, after which `more` seconds are allowed besides."""
        if state != self._state:
            self._state, self._timeout = state, math.ceil(self._clock() - self._start) + self._seconds + more


def pause(waited: float) -> float:
    """Return the interval until the next poll: a tenth of the wait so far, within limits.

    So a short wait ends at once, and a long wait needs few polls and takes at most a tenth longer.
    """
    return min(max(waited / 10, MIN_INTERVAL), MAX_INTERVAL)


def wait_until(
    poll_once: Callable[[], T | None],
    what: str | Callable[[], str],
    timeout: Timeout,
    *,
    announce: bool | Callable[[], str] = False,
    least_interval: float = MIN_INTERVAL,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> T:
    """Return the result of `poll_once`, as soon as the result is true.

    Args:
        poll_once: polls once; called at least once, and a last time when the timeout is over.
        what: the awaited event, "… to …", for messages; or a function that returns it.
        timeout: as for `poll`.
        announce: whether to log the awaited event after `TELL_SECONDS`, and again after each change of it; or a
            function that returns what to log instead.
        least_interval: as for `poll`.
        sleep: for tests.

    Raises:
        WaitTimeout: the result was false until the timeout. The backend may be unreachable meanwhile.
        BackendUnreachable: the first poll did not reach the backend.
    """
    unreachable: BackendUnreachable | None = None
    logged = ""
    start = clock()
    for number, _ in enumerate(poll(timeout, least_interval=least_interval, clock=clock, sleep=sleep)):
        try:
            if result := poll_once():
                return result
            unreachable = None
        except BackendUnreachable as error:
            if number == 0:
                raise
            unreachable = error
        if (
            announce
            and clock() - start >= TELL_SECONDS
            and (event := _words(what if announce is True else announce)) != logged
        ):
            log.warning("waiting for %s", event)
            logged = event
    if unreachable is not None:
        raise WaitTimeout(f"waited {_seconds(timeout):g} s: {unreachable}", help=unreachable.help) from unreachable
    raise WaitTimeout(f"waited {_seconds(timeout):g} s for {_words(what)}")


def _words(what: str | Callable[[], str]) -> str:
    return what if isinstance(what, str) else what()


def readable(descriptor: int, timeout: float) -> bool:
    """Wait until a descriptor is readable or closed; return False after `timeout` seconds.

    The descriptor of a process (`os.pidfd_open`) is readable when the process has ended.
    """
    return bool(ready([descriptor], timeout))


def ready(descriptors: Iterable[int], timeout: float | None, *, sink: int | None = None) -> set[int]:
    """Return the descriptors that are readable or closed, after waiting for the first of them.

    Args:
        sink: a descriptor, or None: the wait ends when it is writable, too.
        timeout: in seconds; None means no end.
    """
    return events(descriptors, [] if sink is None else [sink], timeout)[0]


def writable(descriptor: int) -> bool:
    """Return whether a descriptor takes bytes now, or is closed."""
    return any(events([], [descriptor], 0))


def events(sources: Iterable[int], sinks: Iterable[int], timeout: float | None) -> tuple[set[int], set[int]]:
    """Wait for the first of several descriptors; on Windows, these are sockets.

    Args:
        sources: descriptors to read from.
        sinks: descriptors to write to.
        timeout: in seconds; None means no end.

    Returns:
        The descriptors that are readable or closed, and those that are writable.
    """
    sources, sinks = set(sources), set(sinks)
    if sys.platform == "win32":
        readable, writable, _ = select.select(sources, sinks, [], timeout)
        return set(readable), set(writable)
    poll = select.poll()  # `select.select` refuses descriptors above 1023, which a user's program may have
    for descriptor in sources | sinks:
        wanted = (select.POLLIN if descriptor in sources else 0) | (select.POLLOUT if descriptor in sinks else 0)
        poll.register(descriptor, wanted)
    found = poll.poll(None if timeout is None else 1000 * timeout)
    return (
        {descriptor for descriptor, event in found if event != select.POLLOUT},
        {descriptor for descriptor, event in found if event & select.POLLOUT},
    )


def rest(seconds: float) -> None:
    """Wait for the whole time."""
    time.sleep(seconds)


class Retries:
    """Waits between retries: short at first, then longer, with jitter so that clients spread.

    Args:
        timeout: the seconds from now in which retries begin.
        clock, sleep, jitter: for tests.
    """

    def __init__(
        self,
        timeout: float,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._sleep, self._jitter = clock, sleep, jitter
        self._end = clock() + timeout
        self._pause = FIRST_RETRY_INTERVAL

    @property
    def left(self) -> float:
        """The seconds left."""
        return max(0.0, self._end - self._clock())

    def wait(self, at_least: float = 0.0) -> bool:
        """Wait until the next retry, at least `at_least` seconds; return False at once if too little time is left."""
        seconds = max(at_least, self._pause * (0.5 + self._jitter() / 2))
        if seconds > self.left:
            return False
        self._pause = min(2 * self._pause, MAX_RETRY_INTERVAL)
        self._sleep(seconds)
        return True


def every(seconds: float, *, sleep: Sleep = time.sleep) -> Iterator[None]:
    """Yield now, and again `seconds` after each iteration, without an end."""
    while True:
        yield
        sleep(seconds)


def changes(poll_once: Callable[[], T], *, clock: Clock = time.monotonic, sleep: Sleep = time.sleep) -> Iterator[T]:
    """Yield the result of `poll_once` now, and again after each change of it, without an end."""
    last: T | None = None
    while True:
        for _ in poll(None, clock=clock, sleep=sleep):
            if (result := poll_once()) != last:
                break
        last = result
        yield result
