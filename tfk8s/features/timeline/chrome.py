"""A recording as a Chrome trace, which Perfetto and chrome://tracing open.

The form is the "Trace Event Format" of Chromium. A task is a process, and a device has as many threads as operations
that ran at the same time.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tfk8s.features.timeline import clocks
from tfk8s.features.timeline.critical_path import tensor_name
from tfk8s.features.timeline.lanes import take_lane
from tfk8s.features.timeline.steps import SCRIPT, Recording, TracedDevice, TracedStep, naming_order
from tfk8s.features.timeline.summary import size_text

MAX_EVENTS = 100_000
_ARRIVALS = "received"  # the name of the thread with a task's transfers

Object = dict[str, Any]


def chrome_trace(recording: Recording, max_events: int = MAX_EVENTS) -> tuple[str, int]:
    """Return the trace, and the number of its steps: all recorded steps, or the first if they have too many events.

    Args:
        max_events: the maximum number of events, which only the first step may exceed.
    """
    trace = _Trace()
    events = count = 0
    for step in recording.steps:
        events += len(step.operations) + 3 * len(step.transfers)
        if count and events > max_events:
            break
        trace.add(clocks.align(step)[0])
        count += 1
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": [*trace.metadata(), *trace.events]}) + "\n", count


class _Trace:
    """The events of a trace, and the numbers of processes and threads.

    Attributes:
        events: the events.
    """

    def __init__(self) -> None:
        self.events: list[Object] = []
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[str, str, int], int] = {}
        self._flows = itertools.count(1)

    def add(self, step: TracedStep) -> None:
        """Add the events of a step."""
        self.events.append({
            "ph": "X", "name": step.call, "cat": "step", **self._place(SCRIPT, "session.run", 0), "ts": step.began,
            "dur": step.duration, "args": {"number": step.number},
        })  # fmt: skip
        lanes: dict[TracedDevice, list[int]] = {}
        for one in sorted(step.operations, key=lambda one: one.start):
            lane = take_lane(lanes.setdefault(one.device, []), one.start, one.end)
            self.events.append({
                "ph": "X", "name": one.name, "cat": one.kind or "operation",
                **self._place(one.device.task, one.device.name, lane), "ts": step.began + one.start,
                "dur": one.end - one.start, "args": {"type": one.kind, "inputs": list(one.inputs)},
            })  # fmt: skip
        self._add_transfers(step)

    def _add_transfers(self, step: TracedStep) -> None:
        lanes: dict[str, list[int]] = {}
        for one in sorted(step.transfers, key=lambda one: one.start):
            lane = take_lane(lanes.setdefault(one.target.task, []), one.start, one.end)
            place = self._place(one.target.task, _ARRIVALS, lane)
            name, flow = tensor_name(one.tensor), {"cat": "transfer", "id": next(self._flows)}
            sender = self._place(one.source.task, one.source.name, 0)
            args = {"from": one.source.task, "bytes": one.size, "size": size_text(one.size)}
            times = {"ts": step.began + one.start, "dur": one.end - one.start}
            self.events += [
                {"ph": "X", "name": name, "cat": "transfer", **place, **times, "args": args},
                {"ph": "s", "name": name, **flow, **sender, "ts": step.began + one.start},
                {"ph": "f", "bp": "e", "name": name, **flow, **place, "ts": step.began + one.end},
            ]

    def _place(self, task: str, device: str, lane: int) -> Object:
        process = self._processes.setdefault(task, len(self._processes) + 1)
        return {"pid": process, "tid": self._threads.setdefault((task, device, lane), len(self._threads) + 1)}

    def metadata(self) -> Iterator[Object]:
        """Yield the names of processes and threads, in the order of tasks."""
        tasks = sorted(self._processes, key=lambda task: (task != SCRIPT, naming_order(task)))
        for number, task in enumerate(tasks):
            process = {"ph": "M", "pid": self._processes[task]}
            yield {**process, "name": "process_name", "args": {"name": task}}
            yield {**process, "name": "process_sort_index", "args": {"sort_index": number}}
        for task, device, lane in self._threads:
            place = self._place(task, device, lane)
            yield {"ph": "M", "name": "thread_name", **place, "args": {"name": f"{device} {lane}" if lane else device}}
