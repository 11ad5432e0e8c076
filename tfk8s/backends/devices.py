"""What the tasks of a cluster have: asked of the servers, not read from the job file.

The master answers for all at once when, and only when, every task answers it. Where it does not answer, each task is
asked by itself, which tells who is silent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tfk8s import concurrency
from tfk8s.backends.protocol import Backend
from tfk8s.core.spec import EVALUATOR, Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.errors import TaskError, TaskUnreachable
from tfk8s.task import probe, wire
from tfk8s.task.probe import Device

ANSWER_SECONDS = 2.0
_AT_ONCE = 32
_OWNER = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)/")

_Ask = Callable[..., list[Device]]


@dataclass(frozen=True, slots=True)
class TaskDevices:
    """The devices of one task.

    Attributes:
        task: whose.
        devices: what its server has; nothing where it does not answer.
        error: why it does not answer, in a sentence; "" where it does.
    """

    task: Task
    devices: tuple[Device, ...] = ()
    error: str = ""

    @property
    def reason(self) -> str:
        """The error, to be read after the task's name."""
        return self.error.removeprefix(f"{self.task} ")


def list_devices(backend: Backend, status: ClusterStatus) -> list[TaskDevices]:
    """Return the devices of each task, in the order of `status`."""
    try:
        return ask_master(backend, status)
    except TaskError:
        answers = ask_each(backend, status.name, [task.task for task in status.tasks])
        return [_explained(answer, task) for answer, task in zip(answers, status.tasks, strict=True)]


def _explained(answer: TaskDevices, status: TaskStatus) -> TaskDevices:
    """Return a task's silence with what is known of the task, which says more than a connection that fails."""
    if not answer.error or status.phase is Phase.READY:
        return answer
    return replace(answer, error=f"{answer.task} does not answer: it is {status.state}")


def ask_master(backend: Backend, status: ClusterStatus, timeout: float = ANSWER_SECONDS) -> list[TaskDevices]:
    """Return the devices of each task as the master knows them; an evaluator, which it doesn't know, is asked itself.

    Raises:
        TaskUnreachable: the master does not answer, because a task does not answer it or for another reason.
    """
    devices = _ask(backend, status.name, status.master, probe.list_devices, timeout)
    apart = [task.task for task in status.tasks if task.task.job == EVALUATOR]
    found = {answer.task: answer for answer in (*by_task(devices), *ask_each(backend, status.name, apart, timeout))}
    missing = [task.task for task in status.tasks if task.task not in found or found[task.task].error]
    if missing:
        raise TaskUnreachable(f"{status.master} knows no devices of {', '.join(map(str, missing))}")
    return [found[task.task] for task in status.tasks]


def ask_each(backend: Backend, name: str, tasks: Sequence[Task], timeout: float = ANSWER_SECONDS) -> list[TaskDevices]:
    """Ask tasks at the same time, each by itself."""

    def ask(task: Task) -> TaskDevices:
        try:
            return TaskDevices(task, tuple(_ask(backend, name, task, probe.get_status, timeout)))
        except TaskError as error:
            return TaskDevices(task, error=str(error))

    return concurrency.map_parallel(ask, tasks, _AT_ONCE)


def require_all(answers: Iterable[TaskDevices]) -> None:
    """Check that every task answered.

    Raises:
        TaskUnreachable: names each that did not, and why.
    """
    errors = [answer.error for answer in answers if answer.error]
    if errors:
        raise TaskUnreachable("; ".join(errors))


def by_task(devices: Iterable[Device]) -> list[TaskDevices]:
    """Return devices grouped by the task that their names say."""
    owned: dict[Task, list[Device]] = {}
    for device in devices:
        if owner := _OWNER.match(device.name):
            owned.setdefault(Task(owner[1], int(owner[2])), []).append(device)
    return [TaskDevices(task, tuple(own)) for task, own in owned.items()]


def _ask(backend: Backend, name: str, task: Task, ask: _Ask, timeout: float) -> list[Device]:
    try:
        with backend.dial(name, task) as stream:
            return ask(stream, timeout)
    except TimeoutError as error:
        raise TaskUnreachable(f"{task} does not answer within {timeout:g} s") from error
    except (OSError, wire.ProbeError) as error:
        why = getattr(error, "strerror", None) or error
        raise TaskUnreachable(f"{task} does not answer: {why}") from error
