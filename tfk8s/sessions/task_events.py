"""Changes of tasks and refused connections, which travel between processes as lines of JSON."""

from __future__ import annotations

import enum
import json
import os
from dataclasses import dataclass


class TaskChange(enum.StrEnum):
    """The kinds of changes."""

    LOST = "lost"
    BACK = "back"  # the server itself answers again
    REPLACED = "replaced"  # another server answers in the task's place
    REFUSED = "refused"  # a connection from the cluster to another network; of no task


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """A change of a task.

    Attributes:
        task: its short name, "worker/1".
        change: the kind of change.
        reason: the reason for a loss or a refusal; "" for other changes.
    """

    task: str
    change: TaskChange
    reason: str = ""

    def __str__(self) -> str:
        """The change in words, for users."""
        if self.change is TaskChange.LOST:
            return f"{self.task} was lost: {self.reason}"
        if self.change is TaskChange.REFUSED:
            return self.reason
        if self.change is TaskChange.BACK:
            return f"{self.task} answers again"
        return f"{self.task} was restarted: sessions opened before are lost"

    def to_line(self) -> bytes:
        """Return the event as a line of JSON."""
        return json.dumps([self.task, self.change, self.reason]).encode() + b"\n"

    @classmethod
    def from_line(cls, line: str | bytes) -> TaskEvent:
        """Return the event that a line describes."""
        task, change, reason = json.loads(line)
        return cls(task, TaskChange(change), reason)


def lost(task: str, reason: str) -> TaskEvent:
    """Return the event of a task's loss."""
    return TaskEvent(task, TaskChange.LOST, reason)


def refused(reason: str) -> TaskEvent:
    """Return the event of a refused connection; the reason names the address and the rule."""
    return TaskEvent("", TaskChange.REFUSED, reason)


def read_events(descriptor: int) -> list[TaskEvent]:
    """Return the next events from a pipe, after a wait for the first; none at the pipe's end."""
    return [TaskEvent.from_line(line) for line in os.read(descriptor, 1 << 16).splitlines()]
