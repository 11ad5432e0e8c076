"""The rules about the end of a cluster."""

from __future__ import annotations

import pytest

from tfk8s.core.lifetime import NO_LIMITS, Limits, format_duration

LIMITS = Limits(max_duration=28800, idle=1800)


REACHED = [
    (LIMITS, 28799, 1799, ""),
    (LIMITS, 28800, 0, "8h after its first `up` (max_duration)"),
    (LIMITS, 1800, 1800, "after 30m without a session and a script (idle)"),
    (Limits(None, 90), 1e9, 89, ""),
    (Limits(90, None), 89, 1e9, ""),
    (NO_LIMITS, 1e9, 1e9, ""),
]
LEASE = Limits(None, None, 900)


def test_the_limit_that_is_reached() -> None:
    for limits, age, quiet, reason in REACHED:
        assert limits.why_over(age, quiet) == reason, limits


def test_a_lease_lasts_for_a_sleep_of_its_length_between_two_renewals() -> None:
    assert LEASE.why_over(0, 0, 900 + 2 * 60 - 1) == ""
    assert LEASE.why_over(0, 0, 900 + 2 * 60) == "after its `run` had been gone for 15m (lease)"
    assert LIMITS.why_over(0, 0, 1e9) == ""
    assert LEASE.seconds_to_wait(0, 0, 0) == 60
    assert LEASE.seconds_to_wait(0, 0, 1000) == 20


SLEEP = Limits(max_duration=None, idle=7 * 86400, suspend=1800)


@pytest.mark.parametrize(
    ("limits", "quiet", "sleeps"),
    [(SLEEP, 1799, False), (SLEEP, 1800, True), (SLEEP._replace(idle=None), 1e9, True), (LIMITS, 1e9, False),
     (SLEEP._replace(lease=900), 1e9, False)],
)  # fmt: skip
def test_idleness_suspends_before_it_removes(limits: Limits, quiet: float, sleeps: bool) -> None:
    assert limits.is_sleep_due(quiet) is sleeps
    assert SLEEP.why_over(1e9, quiet) == ("" if quiet < 1e9 else "after 7d without a session and a script (idle)")


def test_the_first_limit_of_idleness() -> None:
    assert (LIMITS.first_idle, SLEEP.first_idle, NO_LIMITS.first_idle) == (1800, 1800, None)
    assert (LIMITS.watch_use, SLEEP._replace(idle=None).watch_use, NO_LIMITS.watch_use) == (True, True, False)


LOOKS = [
    (SLEEP, 0, 1790, 10),
    (SLEEP, 0, 1801, 60),  # suspended
    (SLEEP, 0, 7 * 86400 - 5, 5),
    (LIMITS, 0, 0, 60),  # a tenth of `idle` is more
    (LIMITS, 0, 1790, 10),
    (LIMITS, 28795, 0, 5),
    (Limits(None, 100), 0, 0, 10),
    (Limits(20, None), 19.9, 0, 1),
    (Limits(20, None), 25, 0, 1),
]


def test_the_next_look_comes_before_a_limit() -> None:
    for limits, age, quiet, seconds in LOOKS:
        assert limits.seconds_to_wait(age, quiet) == seconds, limits


@pytest.mark.parametrize(("seconds", "text"), [(86400, "1d"), (5400, "90m"), (61, "61s"), (0, "0s"), (28800.0, "8h")])
def test_durations_are_written_as_in_a_job_file(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
