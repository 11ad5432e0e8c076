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


LOOKS = [
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
