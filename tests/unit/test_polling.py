"""Waiting, on a clock that the tests turn."""

from __future__ import annotations

import fcntl
import functools
import itertools
import math
import os
import re
import resource
from pathlib import Path

import pytest

from tfk8s import polling
from tfk8s.errors import BackendUnreachable, WaitTimeout


class Clock:
    """Stands still but for sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.sleeps.append(seconds)
        self.now += seconds


def test_the_first_poll_is_at_once_and_the_last_at_the_timeout() -> None:
    clock = Clock()
    looks = [clock.now - 1000 for _ in polling.poll(3, clock=clock, sleep=clock.sleep)]
    assert (looks[0], looks[-1]) == (0, pytest.approx(3))
    assert looks == sorted(looks)


def test_a_timeout_may_grow() -> None:
    clock = Clock()
    polls = polling.poll(lambda: 5 if clock.now < 1002 else 8, clock=clock, sleep=clock.sleep)
    assert [clock.now - 1000 for _ in polls][-1] == pytest.approx(8)


def test_a_timeout_may_grow_at_the_last_poll() -> None:
    clock, limits = Clock(), [5.0]
    polls = []
    for left in polling.poll(lambda: limits[-1], clock=clock, sleep=clock.sleep):
        polls.append(clock.now - 1000)
        if left == 0:
            limits.append(8.0)
    assert polls[-1] == pytest.approx(8)


def test_a_timeout_begins_again_with_each_change() -> None:
    clock = Clock()
    timeout = polling.TimeoutWithoutChange(60, clock=clock)
    left = itertools.chain([3, 3, 2], itertools.repeat(1))

    def is_done() -> None:
        clock.now += 25
        timeout.note(next(left))

    with pytest.raises(WaitTimeout, match="waited 161 s for all to end"):
        polling.wait_until(is_done, "all to end", timeout, clock=clock, sleep=clock.sleep)


def test_a_timeout_of_zero_polls_once() -> None:
    clock = Clock()
    assert list(polling.poll(0, clock=clock, sleep=clock.sleep)) == [0]
    assert clock.sleeps == []


def test_seconds_left_are_yielded() -> None:
    clock = Clock()
    assert next(polling.poll(7, clock=clock, sleep=clock.sleep)) == 7
    assert next(polling.poll(None, clock=clock, sleep=clock.sleep)) == math.inf


def test_intervals_grow_to_a_maximum() -> None:
    clock = Clock()
    for _ in itertools.islice(polling.poll(None, clock=clock, sleep=clock.sleep), 200):
        pass
    assert clock.sleeps == sorted(clock.sleeps)
    assert (clock.sleeps[0], clock.sleeps[-1]) == (polling.MIN_INTERVAL, polling.MAX_INTERVAL)
    assert polling.MAX_INTERVAL <= 0.25


def test_intervals_have_a_minimum() -> None:
    clock = Clock()
    with pytest.raises(WaitTimeout):
        polling.wait_until(lambda: None, "it", 0.7, least_interval=0.3, clock=clock, sleep=clock.sleep)
    assert clock.sleeps == pytest.approx([0.3, 0.3, 0.1])


def test_no_sleep_exceeds_the_timeout() -> None:
    clock = Clock()
    for _ in polling.poll(1, clock=clock, sleep=clock.sleep):
        clock.now += 0.9
    assert clock.now == pytest.approx(1000 + 0.9 + 0.09 + 0.9 + 0.9, abs=0.2)


def test_a_wait_returns_the_result() -> None:
    clock, seen = Clock(), iter([None, "", 0, "there"])
    assert polling.wait_until(lambda: next(seen), "it", 5, clock=clock, sleep=clock.sleep) == "there"
    assert len(clock.sleeps) == 3


def test_a_timeout_names_the_awaited_event() -> None:
    clock = Clock()
    with pytest.raises(WaitTimeout) as caught:
        polling.wait_until(lambda: None, "worker/1 to answer", 0.25, clock=clock, sleep=clock.sleep)
    assert str(caught.value) == "waited 0.25 s for worker/1 to answer"
    assert caught.value.exit_code == 124


def test_a_long_wait_logs_each_awaited_event_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()

    def what() -> str:
        return "an image" if clock.now < 1005 else "a place"

    polling.wait_until(lambda: clock.now >= 1010, what, 20, announce=True, clock=clock, sleep=clock.sleep)
    assert caplog.messages == ["waiting for an image", "waiting for a place"]


def test_a_short_wait_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    polling.wait_until(lambda: clock.now > 1001, "it", 20, announce=True, clock=clock, sleep=clock.sleep)
    assert caplog.messages == []


def test_an_unreachable_backend_may_come_back() -> None:
    clock, looks = (
        Clock(),
        iter([None, BackendUnreachable("no answer"), None, BackendUnreachable("no answer"), "there"]),
    )

    def look() -> str | None:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    assert polling.wait_until(look, "it", 5, clock=clock, sleep=clock.sleep) == "there"


def test_an_unreachable_backend_fails_the_first_poll_or_is_named() -> None:
    clock, seen = Clock(), iter([None])

    def look() -> None:
        for found in seen:
            return found
        raise BackendUnreachable("the API server does not answer", help="start it")

    with pytest.raises(WaitTimeout) as caught:
        polling.wait_until(look, "it", 0.25, clock=clock, sleep=clock.sleep)
    assert (str(caught.value), caught.value.help) == ("waited 0.25 s: the API server does not answer", "start it")
    with pytest.raises(BackendUnreachable):
        polling.wait_until(look, "it", 0.25, clock=clock, sleep=clock.sleep)


def test_retry_intervals_grow_until_the_timeout() -> None:
    clock = Clock()
    retries = polling.Retries(8, clock=clock, sleep=clock.sleep, jitter=lambda: 0.5)
    while retries.wait():
        pass
    assert clock.sleeps == [0.75 * pause for pause in (0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2)]
    assert retries.left < 1.5


def test_a_retry_respects_its_minimum_and_the_timeout() -> None:
    clock = Clock()
    retries = polling.Retries(8, clock=clock, sleep=clock.sleep)
    assert retries.wait(5)
    assert not retries.wait(5)
    assert clock.sleeps == [5]


def test_a_timeout_evaluates_the_awaited_event_at_the_end() -> None:
    clock, looks = Clock(), []
    with pytest.raises(WaitTimeout) as caught:
        polling.wait_until(
            lambda: looks.append(1), lambda: f"look {len(looks) + 1}", 0.012, clock=clock, sleep=clock.sleep
        )
    assert str(caught.value) == "waited 0.012 s for look 5"


def test_changes_are_yielded() -> None:
    clock, seen = Clock(), iter(["a", "a", "b", "b", "a"])
    found = polling.changes(lambda: next(seen), clock=clock, sleep=clock.sleep)
    assert list(itertools.islice(found, 3)) == ["a", "b", "a"]


# ---- nobody waits in other ways ------------------------------------------------------------------------------------

EVENT_LOOPS = {
    "sessions/forks/fork_server.py",
    "sessions/forks/event_loop.py",
    "sessions/task_monitor.py",
}
# Texts that are sent to pods, which need the standard library only.
PROGRAMS_FOR_PODS = {"cluster/network_policy.py", "task/programs/inspector.py"}


def modules_with(pattern: str) -> set[str]:
    """Return the modules of the package in which a pattern of whole lines or words occurs."""
    return {name for name, text in modules().items() if re.search(pattern, text, re.MULTILINE)}


@functools.cache
def modules() -> dict[str, str]:
    package = Path(polling.__file__).parent
    return {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}


def test_only_this_module_sleeps() -> None:
    sleeping = {"polling.py", "backends/meter.py", *PROGRAMS_FOR_PODS}
    assert modules_with(r"\btime\.sleep\b|^from time import .*\bsleep\b") == sleeping
    assert modules_with(r"^ *(import|from) (select|selectors)\b") == {"polling.py", *PROGRAMS_FOR_PODS, *EVENT_LOOPS}


def test_readable_and_closed_descriptors() -> None:
    end, other = os.pipe()
    assert not polling.readable(end, 0)
    os.write(other, b"!")
    assert polling.readable(end, 60)
    os.read(end, 1)
    os.close(other)
    assert polling.readable(end, 60)
    os.close(end)


def test_readable_descriptors_above_1023() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    (end, other), (idle, kept) = os.pipe(), os.pipe()
    high = fcntl.fcntl(end, fcntl.F_DUPFD, 1100 if hard == resource.RLIM_INFINITY else min(1100, hard - 1))
    try:
        assert polling.ready([high, idle], 0) == set()
        os.write(other, b"!")
        assert polling.ready([high, idle], None) == {high}
    finally:
        for descriptor in (end, other, idle, kept, high):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_every_yields_at_each_interval() -> None:
    clock = Clock()
    assert len(list(itertools.islice(polling.every(2, sleep=clock.sleep), 3))) == 3
    assert clock.sleeps == [2, 2]
