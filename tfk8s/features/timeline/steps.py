"""Steps that a script's sessions ran, as plain data, and the lines of a recording.

A step is one `session.run`. All times are microseconds since the beginning of that call, each by the clock of its task.
This file also runs in pods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfk8s.core import naming

SCRIPT = "script"  # in the place of a task's name
# The second is the form of devices whose times come from a GPU's driver.
_DEVICE = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)/(?:device:)?(.+)")


@dataclass(frozen=True, slots=True)
class TracedDevice:
    """A device of a task.

    Attributes:
        task: the task's short name, "worker/0"; "" if the device's name has no task.
        name: the name in the task, "CPU:0".
    """

    task: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TracedDevice:
        """Return the device of TensorFlow's name, "/job:worker/replica:0/task:0/device:CPU:0"."""
        match = _DEVICE.fullmatch(text)
        return cls(naming.task(match[1], int(match[2])), match[3]) if match else cls("", text)


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """An operation that ran in a step.

    Attributes:
        device: the device.
        name: the name in the graph that ran, which TensorFlow may have rewritten.
        kind: the operation's type, "MatMul"; "" if unknown.
        inputs: the operation's inputs, as TensorFlow writes them.
        ready: the time at which the operation could start.
        start: the time of its start.
        end: the time of its end.
    """

    device: TracedDevice
    name: str
    kind: str
    inputs: tuple[str, ...]
    ready: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor that one task sent to another.

    Attributes:
        tensor: the operation whose output was sent.
        source: the device that sent the tensor.
        target: the device that received the tensor.
        start: the time at which the sender began, or at which the receiver asked if that was later.
        end: the time at which the receiver had the tensor.
        size: in bytes.
    """

    tensor: str
    source: TracedDevice
    target: TracedDevice
    start: int
    end: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """A recorded step.

    Attributes:
        call: what the step fetched.
        number: the number of the call among those with the same fetches, from 1.
        began: the time of the call since the script's first recorded one, in microseconds.
        duration: the duration of the call, in microseconds.
        fed: the bytes of each tensor that the script fed.
        operations: the operations that ran.
        transfers: the tensors that tasks sent each other.
        is_cut: the step had more operations. The recording has the earliest of them.
    """

    call: str
    number: int
    began: int
    duration: int
    fed: Mapping[str, int] = field(default_factory=dict)
    operations: tuple[TracedOperation, ...]
    transfers: tuple[Transfer, ...] = ()
    is_cut: bool = False

    @property
    def devices(self) -> list[TracedDevice]:
        """The devices of the step, in the order of their tasks and names."""
        devices = {operation.device for operation in self.operations}
        devices.update(device for transfer in self.transfers for device in (transfer.source, transfer.target))
        return sorted(devices, key=lambda device: (naming_order(device.task), device.name))

    @property
    def tasks(self) -> list[str]:
        """The tasks of the step, in the order of their names."""
        return list(dict.fromkeys(device.task for device in self.devices))

    @property
    def span(self) -> int:
        """The time until the last operation and transfer has ended."""
        ends = (event.end for events in (self.operations, self.transfers) for event in events)
        return max(ends, default=self.duration)


@dataclass(frozen=True, slots=True)
class CallCount:
    """The calls of `session.run` with the same fetches.

    Attributes:
        call: the fetches.
        count: the number of calls.
        plain: the number of calls that were not recorded.
        seconds: the time of the calls that were not recorded.
    """

    call: str
    count: int = 0
    plain: int = 0
    seconds: float = 0.0

    @property
    def mean(self) -> float | None:
        """The mean duration of a call that was not recorded, in microseconds; None if all were recorded."""
        return self.seconds * 1e6 / self.plain if self.plain else None


@dataclass(frozen=True, slots=True)
class Recording:
    """The recorded steps of a script.

    Attributes:
        steps: the steps, in the order of their calls.
        calls: the counts of calls, by their fetches.
        is_full: the script ran more steps than a recording takes.
    """

    steps: tuple[TracedStep, ...] = ()
    calls: Mapping[str, CallCount] = field(default_factory=dict)
    is_full: bool = False


def naming_order(task: str) -> tuple[str, int]:
    """Return a key that sorts tasks by job and number."""
    job, _, index = task.partition("/")
    return job, int(index) if index.isdecimal() else -1


# ---- lines ---------------------------------------------------------------------------------------------------------


def step_line(step: TracedStep) -> str:
    """Return the line of a step."""
    devices: dict[TracedDevice, int] = {}

    def number(device: TracedDevice) -> int:
        return devices.setdefault(device, len(devices))

    operations = [
        (number(one.device), one.name, one.kind, one.inputs, one.ready, one.start, one.end) for one in step.operations
    ]
    transfers = [
        (one.tensor, number(one.source), number(one.target), one.start, one.end, one.size) for one in step.transfers
    ]
    return _line({
        "step": [step.call, step.number, step.began, step.duration], "fed": step.fed, "cut": step.is_cut,
        "devices": [(device.task, device.name) for device in devices], "operations": operations, "transfers": transfers,
    })  # fmt: skip


def calls_line(calls: Iterable[CallCount], *, is_full: bool) -> str:
    """Return the line of the counts of calls, which replaces the one before."""
    return _line({"calls": [(one.call, one.count, one.plain, one.seconds) for one in calls], "full": is_full})


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":")) + "\n"


def parse(text: str) -> Recording:
    """Return the recording in lines. A script that was killed may have left a part of its last line."""
    steps: list[TracedStep] = []
    calls: dict[str, CallCount] = {}
    is_full = False
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        content = json.loads(line)
        if "step" in content:
            steps.append(step := _step(content))
            calls.setdefault(step.call, CallCount(step.call, step.number))
        else:
            calls |= {count.call: count for count in (CallCount(*values) for values in content["calls"])}
            is_full = content["full"]
    return Recording(tuple(steps), calls, is_full)


def _step(content: Mapping[str, Any]) -> TracedStep:
    devices = [TracedDevice(*device) for device in content["devices"]]
    call, number, began, duration = content["step"]
    return TracedStep(
        call=call, number=number, began=began, duration=duration, fed=content["fed"], is_cut=content["cut"],
        operations=tuple(
            TracedOperation(devices[device], name, kind, tuple(inputs), *times)
            for device, name, kind, inputs, *times in content["operations"]
        ),
        transfers=tuple(
            Transfer(tensor, devices[source], devices[target], *rest)
            for tensor, source, target, *rest in content["transfers"]
        ),
    )  # fmt: skip
