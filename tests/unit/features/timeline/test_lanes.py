"""The lanes of bars and threads."""

from __future__ import annotations

import pytest

from tfk8s.features.timeline.lanes import take_lane


@pytest.mark.parametrize(
    ("limit", "lanes", "left"), [(None, [0, 1, 2, 0, 1], [15, 30, 9]), (2, [0, 1, 1, 0, 1], [15, 30])]
)
def test_the_first_free_lane_is_taken(limit: int | None, lanes: list[int], left: list[int]) -> None:
    ends: list[int] = []
    times = [(0, 5), (1, 8), (2, 9), (5, 15), (9, 30)]
    assert [take_lane(ends, *one, limit) for one in times] == lanes
    assert ends == left
