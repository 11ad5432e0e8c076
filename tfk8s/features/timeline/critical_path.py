"""The critical path of a step: the chain of operations and transfers that the step had to wait for.

The path is found from its end. An operation waited for the input that came last, a transfer for the operation that made
the tensor. An operation whose inputs are unknown waited for the operation of its task that ended before.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tfk8s.features.timeline.steps import SCRIPT, TracedOperation, TracedStep, Transfer

# TensorFlow gives the receiving end of a tensor the name of the operation and a number.
_RECEIVED = re.compile(r"(.+?)(?:_S|/_)\d+")
_READS = re.compile(r"(?:/Read)?/ReadVariableOp(?:_\d+)?$|/read$")
_FED = re.compile(r"_recv_(.+)_\d+")

_ARRIVAL = "> "  # before the names of tensors that come from other tasks

Event = TracedOperation | Transfer


class Wait(StrEnum):
    """The kinds of reasons why a step waits."""

    COMPUTE = "compute"
    TRANSFER = "transfer"
    THREAD = "thread"
    START = "start"


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the critical path.

    Attributes:
        wait: the kind.
        start: the time of its start.
        end: the time of its end.
        event: the operation or the transfer that the step waits for; None at the start of a step.
    """

    wait: Wait
    start: int
    end: int
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why a step waits, with the times of all its segments together.

    Attributes:
        wait: the kind.
        task: the task that computes or sends; the script at the start of a step.
        target: the task that receives; "" if nothing is sent.
        name: the operation or the tensor, in the words of users.
        kind: the operation's type.
        size: the bytes of one transfer.
        count: the number of segments.
        time: the sum of their times.
    """

    wait: Wait
    task: str
    target: str = ""
    name: str = ""
    kind: str = ""
    size: int = 0
    count: int = field(default=1, compare=False)
    time: int = field(default=0, compare=False)


def critical_path(step: TracedStep) -> list[Segment]:
    """Return the segments of the critical path, from the step's start to the end of its last operation or transfer.

    Each segment begins at the end of the one before.
    """
    events = _Events(step)
    segments: list[Segment] = []
    event = events.last()
    limit = 0 if event is None else event.end
    while event is not None:
        start = min(event.start, limit)
        before = events.before(event)
        if isinstance(event, Transfer):
            # What lies between the operation's end and the transfer's start is a part of waiting for the tensor.
            start = min(before.end, limit) if isinstance(before, TracedOperation) else start
            segments.append(Segment(Wait.TRANSFER, start, limit, event))
        else:
            segments.append(Segment(Wait.COMPUTE, start, limit, event))
            if before is not None and before.end < start:
                segments.append(Segment(Wait.THREAD, before.end, start, event))
                start = before.end
        event, limit = before, start
    if limit > 0:
        segments.append(Segment(Wait.START, 0, limit))
    return [segment for segment in reversed(segments) if segment.end > segment.start]


class _Events:
    """The operations and transfers of a step, by what waits for them."""

    def __init__(self, step: TracedStep) -> None:
        by_name: dict[tuple[str, str], list[Event]] = defaultdict(list)
        by_task: dict[str, list[Event]] = defaultdict(list)
        for operation in step.operations:
            by_name[operation.device.task, operation.name].append(operation)
            by_task[operation.device.task].append(operation)
        for transfer in step.transfers:
            # An operation of the same name may run in the receiving task, so arrivals have a mark.
            by_name[transfer.target.task, _ARRIVAL + transfer.tensor].append(transfer)
        self._by_name = {key: _Sorted(events) for key, events in by_name.items()}
        self._by_task = {task: _Sorted(events) for task, events in by_task.items()}
        self._all: tuple[Event, ...] = (*step.operations, *step.transfers)
        self._used: set[int] = set()

    def last(self) -> Event | None:
        """Return the event that ends last."""
        return max(self._all, key=lambda event: event.end, default=None)

    def before(self, event: Event) -> Event | None:
        """Return the event that another one waited for; None if it could start with the step.

        An event is returned once, so that events without a duration make no circle.
        """
        self._used.add(id(event))
        if isinstance(event, Transfer):
            made = self._by_name.get((event.source.task, event.tensor))
            if made is None:
                return None
            return made.latest(event.start, self._used) or made.latest(event.end, self._used)
        inputs: list[Event] = [
            found
            for key in _inputs(event)
            if (events := self._by_name.get(key)) and (found := events.latest(event.start, self._used))
        ]
        if inputs:
            return max(inputs, key=lambda found: found.end)
        previous: Event | None = self._by_task[event.device.task].latest(event.start, self._used)
        could_start = not event.inputs and (previous is None or previous.end <= event.ready)
        return None if could_start else previous


def _inputs(operation: TracedOperation) -> Iterator[tuple[str, str]]:
    """Yield the tasks and names of the events that an operation may have waited for."""
    task = operation.device.task
    for text in operation.inputs:
        name = text.removeprefix("^").partition(":")[0]
        yield task, name
        if received := _RECEIVED.fullmatch(name):
            yield task, received[1]
            yield task, _ARRIVAL + received[1]


class _Sorted:
    """Events by their ends."""

    def __init__(self, events: list[Event]) -> None:
        self._events = sorted(events, key=lambda event: event.end)
        self._ends = [event.end for event in self._events]

    def latest(self, limit: int, used: set[int]) -> Event | None:
        """Return the latest event that has ended at a time, and was not used."""
        for index in range(bisect.bisect_right(self._ends, limit) - 1, -1, -1):
            if id(self._events[index]) not in used:
                return self._events[index]
        return None


def causes(segments: list[Segment]) -> list[Cause]:
    """Return what the segments wait for, the longest first."""
    sums: dict[Cause, tuple[int, int]] = {}
    for segment in segments:
        cause = _cause(segment)
        count, time = sums.get(cause, (0, 0))
        sums[cause] = count + 1, time + segment.end - segment.start
    found = [
        Cause(one.wait, one.task, one.target, one.name, one.kind, one.size, count, time)
        for one, (count, time) in sums.items()
    ]
    return sorted(found, key=lambda cause: -cause.time)


def _cause(segment: Segment) -> Cause:
    match segment.event:
        case None:
            return Cause(Wait.START, SCRIPT)
        case Transfer() as sent:
            return Cause(Wait.TRANSFER, sent.source.task, sent.target.task, tensor_name(sent.tensor), size=sent.size)
        case operation if segment.wait is Wait.THREAD:
            return Cause(Wait.THREAD, operation.device.task)
        case operation:
            return Cause(Wait.COMPUTE, operation.device.task, name=operation.name, kind=operation.kind)


def tensor_name(name: str) -> str:
    """Return the name of a tensor in the words of users: "w1" for "w1/read", "x" for a feed "_recv_x_0"."""
    fed = _FED.fullmatch(name)
    return fed[1] if fed else _READS.sub("", name) or name
