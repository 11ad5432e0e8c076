"""The meaning of a recorded step: the words of its critical path, its transfers, and what each task did."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tfk8s.features.timeline.critical_path import Cause, Wait
from tfk8s.features.timeline.steps import Recording, TracedStep

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_LEAST_SHARE = 0.5  # percent


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """The parts of a step's span that a task spent in each way. The sum is the span.

    Attributes:
        task: the task.
        busy: operations ran.
        receiving: no operation ran, and a tensor was on its way to the task.
        idle: the rest.
        gaps: the times without an operation and a tensor on its way, each with its start and end.
    """

    task: str
    busy: int
    receiving: int
    idle: int
    gaps: tuple[tuple[int, int], ...]


def task_times(step: TracedStep) -> list[TaskTimes]:
    """Return the times of each task."""
    span = max(step.span, 0)  # clocks that differ can end a step before its begin
    running: dict[str, list[tuple[int, int]]] = {task: [] for task in step.tasks}
    arriving: dict[str, list[tuple[int, int]]] = {task: [] for task in running}
    for operation in step.operations:
        running[operation.device.task].append((operation.start, operation.end))
    for transfer in step.transfers:
        arriving[transfer.target.task].append((transfer.start, transfer.end))
    return [_times(task, running[task], arriving[task], span) for task in running]


def _times(task: str, running: list[tuple[int, int]], arriving: list[tuple[int, int]], span: int) -> TaskTimes:
    gaps = tuple(_gaps([*running, *arriving], span))
    not_busy = sum(end - start for start, end in _gaps(running, span))
    idle = sum(end - start for start, end in gaps)
    return TaskTimes(task, span - not_busy, not_busy - idle, idle, gaps)


def _gaps(intervals: Iterable[tuple[int, int]], span: int) -> Iterator[tuple[int, int]]:
    """Yield the times from 0 to `span` that no interval covers."""
    reached = 0
    for start, end in sorted(intervals):
        if start > reached:
            yield reached, min(start, span)
        reached = max(reached, end)
        if reached >= span:
            return
    if reached < span:
        yield reached, span


def sentences(causes: Sequence[Cause], step: TracedStep) -> list[tuple[float, str]]:
    """Return the causes of a step's duration in words, the longest first, each with its percentage of the step's span.

    Causes of less than half a percent share a sentence for each task.
    """
    span = step.span or 1
    shares = [(100 * cause.time / span, cause) for cause in causes]
    named = [(share, _sentence(cause, step)) for share, cause in shares if share >= _LEAST_SHARE]
    short: dict[tuple[Wait, str], list[tuple[float, int]]] = {}
    for share, cause in shares:
        if share < _LEAST_SHARE and cause.wait in (Wait.TRANSFER, Wait.COMPUTE):
            short.setdefault((cause.wait, cause.task), []).append((share, cause.count))
    for (wait, task), found in short.items():
        named.append((sum(share for share, _ in found), _short(wait, task, sum(count for _, count in found))))
    named = [
        (share, f"{percent(share)} of the step waits for {what}") for share, what in named if share >= _LEAST_SHARE
    ]
    return sorted(named, key=lambda one: -one[0])


def _sentence(cause: Cause, step: TracedStep) -> str:
    times = f", {cause.count} times" if cause.count > 1 else ""
    match cause.wait:
        case Wait.TRANSFER:
            size = size_text(cause.size)
            return f"{cause.task} to send {cause.name} to {cause.target} ({size}{times})"
        case Wait.COMPUTE:
            kind = cause.kind if cause.kind != cause.name else ""
            return f"{cause.task} to compute {cause.name}{f' ({kind}{times})' if kind else times}"
        case Wait.THREAD:
            return f"{cause.task} to start operations that are ready"
        case Wait.START:
            fed = f", with {size_text(sum(step.fed.values()))} of feeds" if step.fed else ""
            return f"the script's call to reach the tasks{fed}"


def _short(wait: Wait, task: str, count: int) -> str:
    if wait is Wait.TRANSFER:
        return f"{task} to send tensors, {count} times, each for a short time"
    return f"{task} to compute {count} short operations"


def percent(share: float) -> str:
    """Return a percentage as users read it."""
    return f"{share:.0f} %" if share >= 0.95 else f"{share:.1f} %"


def size_text(size: int) -> str:
    """Return a number of bytes as users read it: "16 MiB"."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_SIZES[unit]}" if value < 1000 else f"{value:.0f} {_SIZES[unit]}"


def time_text(micros: float) -> str:
    """Return a duration as users read it: "4.2 ms"."""
    for limit, scale, unit in ((1e3, 1.0, "µs"), (1e6, 1e3, "ms")):
        if micros < limit * 0.9995:
            return f"{micros / scale:.3g} {unit}"
    return f"{micros / 1e6:.3g} s"


def typical_steps(recording: Recording, limit: int) -> list[TracedStep]:
    """Return a step of each kind of call: that of the median duration, those with the most time first.

    The first call of a kind prepares the graph on the tasks. So the first call is no typical one, if there are others.
    A step may lack transfers, because TensorFlow turns their recording on by messages for which the step does not wait
    (distributed_runtime/master_session.cc). So a step with fewer transfers than most is no typical one, either.

    Args:
        limit: the maximum number of steps.
    """
    by_call: dict[str, list[TracedStep]] = {}
    for step in recording.steps:
        by_call.setdefault(step.call, []).append(step)
    chosen: dict[str, TracedStep] = {}
    for call, steps in by_call.items():
        others = [step for step in steps if step.number > 1]
        usual = statistics.median_high(len(step.transfers) for step in others) if others else 0
        complete = sorted((step for step in others if len(step.transfers) >= usual), key=lambda step: step.duration)
        chosen[call] = complete[(len(complete) - 1) // 2] if complete else steps[0]
    return sorted(chosen.values(), key=lambda step: -total_time(recording, step))[:limit]


def total_time(recording: Recording, step: TracedStep) -> float:
    """Return the time of all calls like a step, in microseconds."""
    calls = recording.calls[step.call]
    return calls.count * (calls.mean or step.duration)
