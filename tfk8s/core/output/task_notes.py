"""Notes of the status about tasks that are not as the others: slow ones, and those whose nodes may be at fault."""

from __future__ import annotations

from typing import NamedTuple

from tfk8s.core.spec import Task


class Straggler(NamedTuple):
    """A task whose program is much slower than those of its job.

    Attributes:
        task: the task.
        rate: its steps in a second.
        median: the rate in the middle of the job's tasks; of two, the higher one.
    """

    task: Task
    rate: float
    median: float

    def __str__(self) -> str:
        return f"{self.task} makes {self.rate:.3g} steps/s, and {self.median:.3g} are usual in its job"


class BadNode(NamedTuple):
    """A node that may be at fault for the failure of a task, since tasks of the same job run on others.

    Attributes:
        task: the task.
        node: the node's name.
        reason: the failure there, after the task's name.
    """

    task: Task
    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.task} {self.reason} there, and its job runs on other nodes"
