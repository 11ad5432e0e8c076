"""Recorded steps for tests of the timeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tfk8s.features.timeline.steps import TracedDevice, TracedOperation, TracedStep, Transfer

MIB = 1 << 20


def operation(
    task: str, name: str, start: int, end: int, *inputs: str, kind: str = "", ready: int | None = None
) -> TracedOperation:
    """Return an operation on a task's CPU."""
    at = start if ready is None else ready
    return TracedOperation(TracedDevice(task, "CPU:0"), name, kind, inputs, at, start, end)


def transfer(tensor: str, source: str, target: str, start: int, end: int, size: int = 4) -> Transfer:
    """Return a transfer between the CPUs of two tasks."""
    return Transfer(tensor, TracedDevice(source, "CPU:0"), TracedDevice(target, "CPU:0"), start, end, size)


def step(*events: TracedOperation | Transfer, call: str = "loss", number: int = 10, duration: int = 1000,
         began: int = 0, fed: dict[str, int] | None = None) -> TracedStep:  # fmt: skip
    """Return a step with operations and transfers."""
    return TracedStep(
        call=call, number=number, began=began, duration=duration, fed=fed or {},
        operations=tuple(event for event in events if isinstance(event, TracedOperation)),
        transfers=tuple(event for event in events if isinstance(event, Transfer)),
    )  # fmt: skip


def training_step(name: str = "mm0") -> TracedStep:
    """Return a step of 1000 µs: ps/0 sends w1 to both workers, of which worker/1 gets w1 last.

    Args:
        name: the name of worker/0's operation.
    """
    return step(
        operation("ps/0", "w1/read", 78, 80, "w1", kind="Identity"),
        transfer("w1/read", "ps/0", "worker/0", 85, 300, 16 * MIB),
        transfer("w1/read", "ps/0", "worker/1", 85, 700, 16 * MIB),
        operation("worker/0", name, 310, 350, "_recv_x_0", "w1/read_S1", kind="MatMul"),
        operation("worker/1", "mm1", 710, 760, "_recv_x_0_S3", "w1/read_S5", kind="MatMul"),
        transfer(name, "worker/0", "ps/0", 355, 365),
        transfer("mm1", "worker/1", "ps/0", 765, 780),
        operation("ps/0", "loss", 790, 1000, f"{name}_S7", "mm1_S9", kind="AddN"),
        duration=1200, fed={"x": 64 << 10},
    )  # fmt: skip


class _Scanned(tuple[Any, ...]):
    """A tuple that counts how often code goes through its entries."""

    __slots__ = ()
    scans = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).scans += 1
        return super().__iter__()


def scans(look: Callable[[TracedStep], object], found: TracedStep) -> int:
    """Return how often a function goes through all operations of a step."""
    counted = dataclasses.replace(found, operations=_Scanned(found.operations))
    before = _Scanned.scans
    look(counted)
    return _Scanned.scans - before
