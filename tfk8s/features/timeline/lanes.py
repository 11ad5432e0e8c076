"""Lanes for what happens at the same time."""

from __future__ import annotations


def take_lane(ends: list[int], start: int, end: int, limit: int | None = None) -> int:
    """Return the first lane that is free at a time, and take the lane until another time.

    Args:
        ends: the time until which each lane is taken; a new lane is appended.
        start: the first time.
        end: the other time.
        limit: the maximum number of lanes. The last lane is taken twice if no lane is free.
    """
    lane = next((number for number, until in enumerate(ends) if until <= start), len(ends))
    if lane == limit:
        lane -= 1
    ends[lane : lane + 1] = [end]
    return lane
