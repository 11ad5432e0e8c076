"""Room for the frames of calls."""

from __future__ import annotations

import resource

import pytest

from tfk8s.call_stack import roomy

pytestmark = pytest.mark.skipif("sys.platform != 'linux'")
CALLS = 1000


def leaf() -> int:
    """Return 0. The frame is larger than that of `call_often`: at each end of a chunk, one depth has no room for it."""
    a = b = c = d = e = f = g = h = i = j = k = m = n = o = p = q = r = s = t = u = 0
    return a + b + c + d + e + f + g + h + i + j + k + m + n + o + p + q + r + s + t + u


def call_often(depth: int) -> int:
    """Return the number of page faults of many calls below so many others."""
    if depth:
        return call_often(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        leaf()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def most_faults() -> int:
    """Return the page faults at the worst depth: a chunk has room for some 100 calls."""
    return max(map(call_often, range(200)))


def test_no_depth_of_calls_maps_memory_again_and_again() -> None:
    assert most_faults() >= CALLS  # with Python's own chunks
    assert roomy(lambda: most_faults())() < CALLS // 10


def test_arguments_results_and_errors_pass() -> None:
    @roomy
    def divide(number: int, *, by: int = 2) -> float:
        """Halve."""
        return number / by

    assert (divide(4), divide(9, by=3), divide.__doc__) == (2, 3, "Halve.")
    with pytest.raises(ZeroDivisionError):
        divide(1, by=0)
