"""The devices of a cluster's tasks, from the servers, not from the job file.

A master with a ClusterSpec answers for all tasks if, and only if, every task answers the master. If it does not answer,
each task is asked itself, which shows the silent tasks. A master of an elastic cluster answers for itself. So each task
is asked itself, and the master is asked whether it can reach them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tfk8s import concurrency
from tfk8s.backends.protocol import Backend
from tfk8s.core import naming
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.errors import InvalidInput, TaskError, TaskUnreachable
from tfk8s.sessions import preflight
from tfk8s.sessions.cluster import elastic
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.cluster.questions import Questions
from tfk8s.task import probe, wire
from tfk8s.task.probe import Device

ANSWER_TIMEOUT = 2.0
_MAX_PARALLEL = 32


class MasterCutOff(TaskUnreachable):
    """The master can't reach tasks that answer here."""


@dataclass(frozen=True, slots=True)
class TaskDevices:
    """The devices of one task.

    Attributes:
        task: the task.
        devices: of its server; none if the server does not answer.
        error: a sentence that says why the server does not answer; "" if it answers.
    """

    task: Task
    devices: tuple[Device, ...] = ()
    error: str = ""

    @property
    def reason(self) -> str:
        """The error, to be read after the task's name."""
        return self.error.removeprefix(f"{self.task} ")


def servers(backend: Backend, status: ClusterStatus) -> list[TaskStatus]:
    """Return the tasks with servers.

    Raises:
        InvalidInput: all tasks run programs.
    """
    found = [task for task in status.tasks if task.has_server]
    if not found:
        raise no_servers(status.name, backend.flags)
    return found


def no_servers(name: str, flags: str) -> InvalidInput:
    """Return the error for a cluster to which no session can connect.

    Args:
        flags: the options that choose the cluster's backend.
    """
    return InvalidInput(
        f'cluster "{name}" has no server to connect to: its tasks run programs',
        help=f"tfk8s logs{flags} {name} shows the output of the programs",
    )


def list_devices(backend: Backend, status: ClusterStatus) -> list[TaskDevices]:
    """Return the devices of each task with a server, in the order of `status`.

    Raises:
        InvalidInput: all tasks run programs.
    """
    asked = servers(backend, status)
    try:
        return ask_servers(backend, status)
    except TaskError:
        answers = ask_each(backend, status.name, [task.task for task in asked])
        return [_explained(answer, task) for answer, task in zip(answers, asked, strict=True)]


def ask_servers(backend: Backend, status: ClusterStatus, questions: Questions | None = None) -> list[TaskDevices]:
    """Return the devices of each server from the master; from each server itself, if other tasks run programs.

    Raises:
        TaskUnreachable: the master or a server does not answer.
    """
    if not any(task.is_program for task in status.tasks):
        return ask_master(backend, status, questions)
    return _ask_all(backend, status.name, [task.task for task in status.tasks if task.has_server])


def require_servers(backend: Backend, status: ClusterStatus, questions: Questions) -> None:
    """Check that each server answers, and that the master can reach all tasks.

    Args:
        questions: those that are open since the last check.

    Raises:
        MasterCutOff: the master can't reach some tasks.
        TaskUnreachable: the master or another server does not answer.
    """
    if not status.is_elastic:
        ask_servers(backend, status, questions)
        return
    _require_reachable(backend, status, questions)
    others = [task.task for task in status.tasks if task.has_server and not task.takes_part]
    _ask_all(backend, status.name, [status.master, *others])


def _require_reachable(backend: Backend, status: ClusterStatus, questions: Questions | None) -> None:
    cluster = view(backend, status, questions=questions)
    if cluster.reaches_all():
        return
    if unreachable := cluster.unreachable():
        raise MasterCutOff(preflight.unreachable({str(status.master): unreachable}))
    raise TaskUnreachable(f"{status.master} does not answer in time whether it can reach the other tasks")


def view(
    backend: Backend, status: ClusterStatus, without: Iterable[str] = (), questions: Questions | None = None
) -> ClusterView:
    """Return the servers of a cluster as sessions see them, with the master first.

    Raises:
        InvalidInput: all tasks run programs.
        TaskUnreachable: the master's job has no tasks.
    """
    found = {str(task.task): task for task in servers(backend, status) if task.takes_part}
    if str(status.master) not in found:
        raise TaskUnreachable(f"{status.master} does not exist: somebody has scaled its job to 0")
    addresses = {str(status.master): found[str(status.master)].address, **{name: found[name].address for name in found}}
    dial = lambda task: backend.dial(status.name, found[task].task)  # noqa: E731
    return ClusterView(addresses, without, dial=dial, is_elastic=status.is_elastic, questions=questions)


def _ask_all(backend: Backend, name: str, tasks: Sequence[Task]) -> list[TaskDevices]:
    answers = ask_each(backend, name, tasks)
    require_all(answers)
    return answers


def _explained(answer: TaskDevices, status: TaskStatus) -> TaskDevices:
    """Return the answer; the status of an unready task replaces the error, because it explains more."""
    if not answer.error or status.phase is Phase.READY:
        return answer
    return replace(answer, error=f"{answer.task} does not answer: it is {status.state}")


def ask_master(backend: Backend, status: ClusterStatus, questions: Questions | None = None) -> list[TaskDevices]:
    """Return the devices of each server from the master. An evaluator is asked itself: the master does not know it.

    Raises:
        TaskUnreachable: the master does not answer, because a task does not answer it or for another reason.
    """
    asked = [task for task in status.tasks if task.has_server]
    if status.is_elastic:
        _require_reachable(backend, status, questions)
        return _ask_all(backend, status.name, [task.task for task in asked])
    dial = lambda: backend.dial(status.name, status.master)  # noqa: E731
    with _explained_errors(status.master, ANSWER_TIMEOUT):
        answer = (questions or Questions()).ask("devices", dial, wire.LIST_DEVICES, ANSWER_TIMEOUT)
    devices = probe.all_devices(answer)
    evaluators = [task.task for task in asked if not task.takes_part]
    answers = (*by_task(devices), *ask_each(backend, status.name, evaluators))
    answered = {answer.task: answer for answer in answers if not answer.error}
    missing = [task.task for task in asked if task.task not in answered]
    if missing:
        raise TaskUnreachable(f"{status.master} knows no devices of {', '.join(map(str, missing))}")
    return [answered[task.task] for task in asked]


def ask_each(backend: Backend, name: str, tasks: Sequence[Task], timeout: float = ANSWER_TIMEOUT) -> list[TaskDevices]:
    """Return the answer of each task, asked in parallel."""

    def ask(task: Task) -> TaskDevices:
        try:
            with _explained_errors(task, timeout), backend.dial(name, task) as stream:
                found = probe.get_status(stream, timeout)
            return TaskDevices(task, tuple(elastic.rename(found, str(task))))
        except TaskError as error:
            return TaskDevices(task, error=str(error))

    return concurrency.map_parallel(ask, tasks, concurrency.servers_at_once(_MAX_PARALLEL))


def require_all(answers: Iterable[TaskDevices]) -> None:
    """Check that every task answered.

    Raises:
        TaskUnreachable: names each task that did not answer, and why.
    """
    errors = [answer.error for answer in answers if answer.error]
    if errors:
        raise TaskUnreachable("; ".join(errors))


def by_task(devices: Iterable[Device]) -> list[TaskDevices]:
    """Return devices grouped by the tasks in their names."""
    groups: dict[Task, list[Device]] = {}
    for device in devices:
        if match := naming.TASK.match(device.name):
            groups.setdefault(Task(match[1], int(match[2])), []).append(device)
    return [TaskDevices(task, tuple(group)) for task, group in groups.items()]


@contextlib.contextmanager
def _explained_errors(task: Task, timeout: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise TaskUnreachable(f"{task} does not answer within {timeout:g} s") from error
    except (OSError, wire.ProbeError) as error:
        why = getattr(error, "strerror", None) or error
        raise TaskUnreachable(f"{task} does not answer: {why}") from error
