"""The limits of a local cluster, by clocks that a test sets."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tfk8s.backends.local.lifetime import LocalLifetime
from tfk8s.core.lifetime import Limits

HOUR = 3600.0


class Loop:
    """Keeps the next look, which a test makes."""

    look: Callable[[], None]

    def after(self, _: float, look: Callable[[], None]) -> None:
        self.look = look


@pytest.mark.parametrize("jump", [-100 * HOUR, 0.0, 100 * HOUR])
def test_a_clock_that_is_set_does_not_end_a_cluster(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    wall, uptime, ends = [1e9], [5000.0], list[str]()
    monkeypatch.setattr(time, "time", lambda: wall[0])
    monkeypatch.setattr(time, "clock_gettime", lambda _: uptime[0])
    loop = Loop()
    created = wall[0] - HOUR  # an earlier supervisor has had an hour of it
    LocalLifetime(loop, Limits(8 * HOUR, None), created, lambda: False, ends.append).start()  # type: ignore[arg-type]
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
    LocalLifetime(loop, Limits(8 * HOUR, HOUR), time.time(), is_used, ends.append).start()  # type: ignore[arg-type]
    loop.look()
    descriptors[0] = True
    loop.look()
    uptime[0] += 8 * HOUR
    loop.look()
    assert ends == ["8h after its first `up` (max_duration)"]
