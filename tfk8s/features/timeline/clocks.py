"""Clocks of tasks on different machines.

The tasks of a step measure their operations by their own clocks. A recorded step says how far the clocks can be apart:

1. No operation starts before the script's call, and none ends after the call.
2. No tensor arrives before the operation that made the tensor has ended.

A clock that breaks none of these rules is left alone. So tasks on one machine keep their exact times. Another clock is
shifted to the middle of the range that the rules allow.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tfk8s.features.timeline.steps import SCRIPT, TracedOperation, TracedStep, Transfer

TOLERANCE = 20  # microseconds by which two measurements may be in the wrong order
_UNLIMITED = 1 << 60

Limits = Mapping[tuple[str, str], int]  # the least difference of two clocks' shifts, by the pair (earlier, later)


def align(step: TracedStep) -> tuple[TracedStep, dict[str, int]]:
    """Return a step with all times by the script's clock, and the shift of each task's clock in microseconds.

    The step stays as it is if no shifts obey the rules. Only a clock that was set during the step causes that.
    """
    limits = _limits(step)
    shifts = find_shifts(limits, step.tasks)
    if not any(shifts.values()):
        return step, shifts
    operations = tuple(
        dataclasses.replace(one, ready=one.ready + by, start=one.start + by, end=one.end + by)
        for one, by in ((one, shifts[one.device.task]) for one in step.operations)
    )
    ends = _ends(operations)
    transfers = tuple(_shift(one, shifts, ends) for one in step.transfers)
    return dataclasses.replace(step, operations=operations, transfers=transfers), shifts


def _shift(transfer: Transfer, shifts: Mapping[str, int], ends: Mapping[tuple[str, str], list[int]]) -> Transfer:
    """Return a transfer that begins with the end of its operation.

    TensorFlow's start of a transfer mixes both clocks: the time of the sender, or that of the receiver if later.
    """
    end = transfer.end + shifts[transfer.target.task]
    made = ends.get((transfer.source.task, transfer.tensor), [])
    before = bisect.bisect_right(made, end)
    start = made[before - 1] if before else max(end - (transfer.end - transfer.start), 0)
    return dataclasses.replace(transfer, start=min(start, end), end=end)


def _ends(operations: Iterable[TracedOperation]) -> dict[tuple[str, str], list[int]]:
    """Return the sorted ends of operations by their tasks and names."""
    ends: dict[tuple[str, str], list[int]] = defaultdict(list)
    for operation in operations:
        ends[operation.device.task, operation.name].append(operation.end)
    for found in ends.values():
        found.sort()
    return ends


def find_shifts(limits: Limits, tasks: list[str]) -> dict[str, int]:
    """Return shifts of the tasks' clocks that keep within limits: 0 if possible, else the middle of the range.

    Args:
        limits: the limits. The script's clock has the shift 0.
    """
    shifts = dict.fromkeys(tasks, 0)
    if all(minimum <= TOLERANCE for minimum in limits.values()):
        return shifts
    fixed = dict(limits)
    for task in tasks:
        lowest, highest = _reach(fixed, task)
        if lowest > highest + TOLERANCE:
            return dict.fromkeys(tasks, 0)
        shifts[task] = 0 if lowest <= TOLERANCE and highest >= -TOLERANCE else (lowest + highest) // 2
        fixed[SCRIPT, task], fixed[task, SCRIPT] = shifts[task], -shifts[task]
    return shifts


def _reach(limits: Limits, task: str) -> tuple[int, int]:
    """Return the lowest and the highest shift of a task, by the longest paths from the script and to the script."""
    after = defaultdict(list)
    before = defaultdict(list)
    for (earlier, later), minimum in limits.items():
        after[earlier].append((later, minimum))
        before[later].append((earlier, minimum))
    return _longest(after, task), -_longest(before, task)


def _longest(edges: Mapping[str, list[tuple[str, int]]], task: str) -> int:
    """Return the length of the longest path from the script to a task, by Bellman and Ford."""
    lengths = {SCRIPT: 0}
    for _ in range(len(edges) + 1):
        changed = False
        for start, length in list(lengths.items()):
            for end, more in edges.get(start, ()):
                if end != SCRIPT and length + more > lengths.get(end, length + more - 1):
                    lengths[end], changed = length + more, True
        if not changed:
            break
    return lengths.get(task, -_UNLIMITED)


def _limits(step: TracedStep) -> Limits:
    limits: dict[tuple[str, str], int] = {}
    for earlier, later, minimum in _rules(step):
        pair = earlier, later
        limits[pair] = max(minimum, limits.get(pair, minimum))
    return limits


def _rules(step: TracedStep) -> Iterator[tuple[str, str, int]]:
    """Yield pairs of clocks, and how much more the second one has to be shifted, at least."""
    ends = _ends(step.operations)
    for operation in step.operations:
        yield SCRIPT, operation.device.task, -operation.start
        yield operation.device.task, SCRIPT, operation.end - step.duration
    arrivals: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for transfer in step.transfers:
        source, target = transfer.source.task, transfer.target.task
        yield SCRIPT, target, -transfer.end
        yield target, SCRIPT, transfer.end - step.duration
        arrivals[source, target, transfer.tensor].append(transfer.end)
    for (source, target, tensor), times in arrivals.items():
        if made := ends.get((source, tensor)):
            each = -(-len(times) // len(made))  # an operation sends several outputs, or runs several times in a loop
            for number, time in enumerate(sorted(times)):
                yield source, target, made[number // each] - time
