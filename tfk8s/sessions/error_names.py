"""Classifies TensorFlow's errors, with the changes of the tasks, as the named errors of tfk8s. Pure.

TensorFlow reports most failures by one of a dozen status codes and a page of C++. The patterns below match TensorFlow's
messages (measured with 2.21; tests/unit/sessions/test_error_names.py has them whole).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfk8s.core import naming
from tfk8s.errors import (
    DeviceMissing,
    GraphTooLarge,
    InvalidInput,
    OutOfMemory,
    TaskLost,
    TaskRestarted,
    TaskUnreachable,
    Tfk8sError,
)

MAX_BYTES = 2**31 - 1  # of one protobuf message

# The runner's failure note: the variable with the name of a file, and the texts that the runner writes there when a
# script ends because of a task. The script may exit with the same code for other reasons.
VARIABLE = "TFK8S_VERDICT"
A_TASK_FAILED = "a task failed"
A_TASK_FAILED_JUST_NOW = "a task failed just now"  # the backend may not have the reason yet

_JOB = re.compile(r"/job:(\w+)")
_PLACEMENT = re.compile(
    r"Cannot assign a device for operation (\S+): .*?explicitly assigned to (\S+) but available devices are \[(.*?)\]",
    re.DOTALL,
)
_DEVICE = re.compile(r"device:(\w+:\d+)")
_UNINITIALIZED = re.compile(r"Attempting to use uninitialized value (\S+)|Could not find variable (\S+?)\. ")
_PYTHON = re.compile(r"No registered '(?:Eager)?PyFunc\w*' OpKernel|callback pyfunc_\d+ is not found")
_MEMORY = re.compile(r"OOM when allocating tensor with shape(\[.*?\]) and type (\w+) on (\S+) by allocator")
_NODE = re.compile(r"\{\{node (\S+?)\}\}")
_TOO_LARGE = (  # the kind of an error, a part of its message, and the subject
    ("InternalError", "exceeds the 2GB protobuf limit", "what the session fetches"),
    ("ValueError", "Cannot create a tensor proto whose content is larger than 2GB", "a constant of the graph"),
)
# Errors that the change of a task may cause; the meaning of others does not depend on tasks.
BROKEN = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "InternalError")
ABOUT_TASKS = (*BROKEN, "FailedPreconditionError")

# TensorFlow's additions to the first sentence: details of the connection, earlier log lines, and stack traces.
_TAIL = re.compile(
    r"\n(?:Additional GRPC error information|Recent warning and error logs:|\s*\[\[|Original stack trace|=====)",
    re.DOTALL,
)
_HEAD = re.compile(
    r"^(?:Graph execution error:|=+|Detected at node .*|    File .*|Node: .*|From /job:.*:|)\n", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A task's answer to a probe.

    Attributes:
        task: its short name, "worker/1".
        address: "host:port".
        incarnation: a random number of the server, which another server in its place does not have.
        version: of TensorFlow; "" if unknown.
        error: the reason why the task does not answer; "" if it answers.
    """

    task: str
    address: str = ""
    incarnation: int = 0
    version: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """The changes of a cluster's tasks until a call fails.

    Attributes:
        master: the task that sessions connect to.
        lost: tasks that do not answer, each with the reason.
        restarted: tasks with another server than before, each with the reason for the first one's end, or "".
        without: tasks that the session leaves out.
    """

    master: str = ""
    lost: Mapping[str, str] = field(default_factory=dict)
    restarted: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()


def compare(
    before: Sequence[ProbeResult], now: Sequence[ProbeResult], reasons: Mapping[str, str], without: Sequence[str] = ()
) -> TaskChanges:
    """Return the changes of tasks between two probes.

    Args:
        before: the answers when all was well; the master's first.
        now: the answers now.
        reasons: why tasks ended, as far as that is known.
        without: tasks that the session leaves out.
    """
    first = {answer.task: answer.incarnation for answer in before}
    return TaskChanges(
        without=without,
        master=before[0].task if before else "",
        lost={answer.task: reasons.get(answer.task) or answer.error for answer in now if answer.error},
        restarted={
            answer.task: reasons.get(answer.task, "")
            for answer in now
            if not answer.error and answer.incarnation != first.get(answer.task, answer.incarnation)
        },
    )


def is_task_failure(noted: str) -> bool:
    """Return whether the runner noted that a task failed."""
    return noted in (A_TASK_FAILED, A_TASK_FAILED_JUST_NOW)


def kind(error: Exception) -> str:
    """Return the name of an error's class, or of the base class that is about tasks (PSUnavailableError has one)."""
    names = [base.__name__ for base in type(error).__mro__]
    return next((name for name in names if name in ABOUT_TASKS), names[0])


def classify(kind: str, message: str, changes: TaskChanges) -> Tfk8sError | None:
    """Return the named error for an error of TensorFlow, or None if it is not about tasks, devices or sizes.

    Args:
        kind: the name of the error's class, "AbortedError".
        message: its text.
        changes: the changes of the tasks.
    """
    readers: tuple[Callable[[str, str, TaskChanges], Tfk8sError | None], ...] = (
        _placement, _python_function, _size, _memory, _variable, _task,
    )  # fmt: skip
    return next(filter(None, (read(kind, message, changes) for read in readers)), None)


def first_sentence(message: str) -> str:
    """Return the first sentence of an error of TensorFlow, on one line."""
    text = _HEAD.sub("", message + "\n")
    return " ".join(_TAIL.split(text, maxsplit=1)[0].split()) or message.strip()


def _placement(kind: str, message: str, changes: TaskChanges) -> Tfk8sError | None:
    del kind
    if (match := _PLACEMENT.search(message)) is None:
        return None
    operation, pinned, available = match.groups()
    devices: dict[str, list[str]] = {}
    for device in available.split(","):
        if task := naming.TASK.search(device):
            devices.setdefault(naming.task(task[1], int(task[2])), []).extend(_DEVICE.findall(device))
    if missing := _missing_job(pinned, devices, changes):
        return DeviceMissing(
            f'operation "{operation}" is pinned to {pinned}: {missing}',
            help="change the job's name in the script's tf.device(…), or in the job file",
        )
    return DeviceMissing(
        f'operation "{operation}" is pinned to {pinned}: {_missing_device(pinned, devices, changes)}',
        help="`tfk8s devices` lists all devices; a job gets GPUs by `gpus:` in the job file; with "
        "ConfigProto(allow_soft_placement=True), TensorFlow uses another device of the same task",
    )


def _missing_job(pinned: str, tasks: Iterable[str], changes: TaskChanges) -> str:
    """Return that the cluster does not have the job of a pinned operation, with its jobs; "" if it has the job."""
    jobs = sorted({task.partition("/")[0] for task in (*tasks, *changes.without)})
    match = _JOB.search(pinned)
    if match is None or not jobs or match[1] in jobs:
        return ""
    return f"this cluster has job{'s' if len(jobs) > 1 else ''} {', '.join(jobs)}, and no job {match[1]}"


def _missing_device(pinned: str, devices: Mapping[str, Sequence[str]], changes: TaskChanges) -> str:
    match, device = naming.TASK.search(pinned), _DEVICE.search(pinned)
    if match is None:
        return (
            f"no task of the session has it; the session has {', '.join(devices)}"
            if _JOB.search(pinned) or device is None
            else (f"no task has a {device[1]}")
        )
    task = naming.task(match[1], int(match[2]))
    if task in changes.without:
        return f"{task} is left out of this session"
    if task not in devices:
        return f"the session has no task {task}; it has {', '.join(devices)}"
    kind = device[1].partition(":")[0] if device else ""
    count = sum(name.startswith(f"{kind}:") for name in devices[task])
    return f"{task} has {count or 'no'} {kind}{'s' if count != 1 else ''}"


def _python_function(kind: str, message: str, changes: TaskChanges) -> Tfk8sError | None:
    del kind, changes
    if not _PYTHON.search(message):
        return None
    task = _mentioned(message, None)
    return InvalidInput(
        f"a Python function (py_func) can't run{' on ' + task if task else ''}: tasks run graphs, and Python functions "
        "stay in the script's process",
        help="call the function in the script and feed its result, or write it with TensorFlow's operations",
    )


def _size(kind: str, message: str, changes: TaskChanges) -> Tfk8sError | None:
    del changes
    return next((too_large(name) for cause, text, name in _TOO_LARGE if kind == cause and text in message), None)


def too_large(name: str, size: int | None = None) -> GraphTooLarge:
    """Return the error about something that is too large for a message."""
    return GraphTooLarge(
        f"{name} {f'is {size / 1e9:.1f} GB' if size else 'is too large'}: one message holds at most 2 GB",
        help="let the tasks read or generate the data themselves (tf.data, tf.io, variables), or pass it in parts",
    )


def _memory(kind: str, message: str, changes: TaskChanges) -> Tfk8sError | None:
    del kind, changes
    if (match := _MEMORY.search(message)) is None:
        return None
    shape, type_, place = match.groups()
    device, node = _DEVICE.search(place), _NODE.search(message, match.end())
    on = f" on {device[1]}" if device else ""
    operation = f' for operation "{node[1]}"' if node else ""
    return OutOfMemory(
        f"{_mentioned(place, None) or 'a task'} has too little memory{on}{operation}: "
        f"it tried to allocate a tensor of shape {shape} and type {type_}",
        help="use smaller batches, spread the work over more tasks, or give the job more memory; variables of earlier "
        "sessions take memory until the task is restarted",
    )


def _variable(kind: str, message: str, changes: TaskChanges) -> Tfk8sError | None:
    match = _UNINITIALIZED.search(message)
    changed = {**changes.restarted, **changes.lost}
    if kind != "FailedPreconditionError" or match is None or not changed:
        return None
    task = _mentioned(message, changed) or next(iter(changed))
    return restarted(task, changed[task], f'; variable "{match[1] or match[2]}" has lost its value')


def _task(kind: str, message: str, changes: TaskChanges) -> Tfk8sError | None:
    if kind not in BROKEN:
        return None
    changed = {**changes.restarted, **changes.lost}
    task = _mentioned(message, changed) or (changes.master if changes.master in changed else next(iter(changed), ""))
    if task in changes.lost:
        return lost(task, changes.lost[task])
    if task in changes.restarted:
        return restarted(task, changes.restarted[task], _consequence(task, changes.master))
    if kind not in ("UnavailableError", "AbortedError"):
        return None
    peer = _mentioned(message, None) or changes.master or "the master"
    return TaskUnreachable(
        f"the connection to {peer} broke, although all tasks answer: {first_sentence(message)}",
        help="the same call may succeed if it is repeated; tfk8s.session(recover=…) opens a new session by itself",
    )


def lost(task: str, reason: str) -> TaskLost:
    """Return the error about a task that is gone."""
    return TaskLost(f"{task} was lost: {reason}", help=f"lost tasks are restarted automatically; {_ADVICE}")


def restarted(task: str, reason: str, consequence: str) -> TaskRestarted:
    """Return the error about a task with another server than before."""
    return TaskRestarted(f"{task} was restarted{f' ({reason})' if reason else ''}{consequence}", help=_ADVICE)


_ADVICE = (
    "tfk8s.session(recover=…) opens a new session and restores a checkpoint; "
    "`tfk8s submit --retries 3` runs the script again"
)


def _consequence(task: str, master: str) -> str:
    if task == master:
        return ": sessions opened before are lost; variables on other tasks are still there"
    if task.startswith("ps/"):
        return ": its variables are lost, and so are the sessions opened before"
    return ": sessions opened before are lost, and variables if it kept any"


def _mentioned(message: str, among: Mapping[str, str] | None) -> str:
    """Return the first task that a message names, or the first of `among`; "" if there is none."""
    tasks = (naming.task(job, int(index)) for job, index in naming.TASK.findall(message))
    return next((task for task in tasks if among is None or task in among), "")
