"""The limits of a local cluster, by clocks that a test sets."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tfk8s.backends.local.lifetime import LocalLifetime
from tfk8s.core.lifetime import Limits

HOUR = 3600.0


def no_sleep(_: float) -> bool:
    raise AssertionError


class Loop:
    """Keeps the next look, which a test makes."""

    look: Callable[[], None]

    def after(self, _: float, look: Callable[[], None]) -> None:
        self.look = look


def start(
    loop: Loop, limits: Limits, created: float, is_used: Callable[[], bool], end: Callable[[str], None],
    suspend: Callable[[float], bool] = no_sleep,
) -> None:  # fmt: skip
    LocalLifetime(loop, limits, created, is_used, end, suspend).start()  # type: ignore[arg-type]


def test_an_idle_cluster_is_suspended_or_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, answers, asked, ends = [5000.0], [False, True], list[float](), list[str]()
    monkeypatch.setattr(time, "clock_gettime", lambda _: seconds[0])
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])

    def suspend(idle: float) -> bool:
        asked.append(idle)
        return answers.pop(0)

    loop = Loop()
    start(loop, Limits(None, 8 * HOUR, suspend=HOUR), time.time(), lambda: False, ends.append, suspend)
    seconds[0] += HOUR - 1
    loop.look()
    assert asked == []
    for _ in range(2):
        seconds[0] += 1
        loop.look()
    assert (asked, answers, ends) == ([HOUR, HOUR], [], [])


@pytest.mark.parametrize("jump", [-100 * HOUR, 0.0, 100 * HOUR])
def test_a_clock_that_is_set_does_not_end_a_cluster(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    wall, uptime, ends = [1e9], [5000.0], list[str]()
    monkeypatch.setattr(time, "time", lambda: wall[0])
    monkeypatch.setattr(time, "clock_gettime", lambda _: uptime[0])
    loop = Loop()
    created = wall[0] - HOUR  # an earlier supervisor has had an hour of it
    start(loop, Limits(8 * HOUR, None), created, lambda: False, ends.append)
    wall[0] += jump
    for _ in range(7):
        loop.look()
        assert ends == []
        uptime[0] += HOUR
    loop.look()
    assert ends == ["8h after its first `up` (max_duration)"]


def test_a_look_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    uptime, ends, descriptors = [5000.0], list[str](), [False]
    monkeypatch.setattr(time, "clock_gettime", lambda _: uptime[0])

    def is_used() -> bool:
        if not descriptors[0]:
            raise OSError("Too many open files")
        return False

    loop = Loop()
    start(loop, Limits(8 * HOUR, HOUR), time.time(), is_used, ends.append)
    loop.look()
    descriptors[0] = True
    loop.look()
    uptime[0] += 8 * HOUR
    loop.look()
    assert ends == ["8h after its first `up` (max_duration)"]
