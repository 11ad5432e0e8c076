"""What TensorFlow's failures mean: from its error and what is known of the tasks, a named one. Pure.

TensorFlow answers most failures with one of a dozen status codes and a page of C++. The patterns below are those of its
own messages (measured with 2.21; tests/unit/sessions/test_error_names.py has them whole).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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

MOST_BYTES = 2**31 - 1  # of one protobuf message

# The runner's own verdict, for who runs it: the name of a file, and what it writes there when it ends the script
# because a task failed. The script may exit with the same code for reasons of its own.
VARIABLE = "TFK8S_VERDICT"
A_TASK_FAILED = "a task failed"
A_TASK_FAILED_JUST_NOW = "a task failed just now"  # so that its back end may not know yet why

# A task as TensorFlow writes it, in most messages with the replica that nobody uses.
_TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")
_PLACEMENT = re.compile(
    r"Cannot assign a device for operation (\S+): .*?explicitly assigned to (\S+) but available devices are \[(.*?)\]",
    re.DOTALL,
)
_DEVICE = re.compile(r"device:(\w+:\d+)")
_UNINITIALIZED = re.compile(r"Attempting to use uninitialized value (\S+)|Could not find variable (\S+?)\. ")
_PYTHON = re.compile(r"No registered '(?:Eager)?PyFunc\w*' OpKernel|callback pyfunc_\d+ is not found")
_MEMORY = re.compile(r"OOM when allocating tensor with shape(\[.*?\]) and type (\w+) on (\S+) by allocator")
_NODE = re.compile(r"\{\{node (\S+?)\}\}")
_TOO_LARGE = (  # the kind of an error, what it says, what it is about
    ("InternalError", "exceeds the 2GB protobuf limit", "what the session fetches"),
    ("ValueError", "Cannot create a tensor proto whose content is larger than 2GB", "a constant of the graph"),
)
# Errors that may come of what became of a task; others have the same meaning whatever did.
BROKEN = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "InternalError")
ABOUT_TASKS = (*BROKEN, "FailedPreconditionError")

# What TensorFlow adds to its first words: an account of the connection, what it logged before, and stack traces.
_TAIL = re.compile(
    r"\n(?:Additional GRPC error information|Recent warning and error logs:|\s*\[\[|Original stack trace|=====)",
    re.DOTALL,
)
_HEAD = re.compile(
    r"^(?:Graph execution error:|=+|Detected at node .*|    File .*|Node: .*|From /job:.*:|)\n", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a task said.

    Attributes:
        task: which, "worker/1".
        address: where it was asked, "host:port".
        incarnation: a number that a restarted server gets anew.
        version: of TensorFlow; "" where it is not known.
        error: why it does not answer; "" where it does.
    """

    task: str
    address: str = ""
    incarnation: int = 0
    version: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """What is known of a cluster's tasks when a call fails.

    Attributes:
        master: the task that sessions connect to.
        lost: tasks that do not answer, each with the reason.
        restarted: tasks that are others than before, each with what ended the first, or "".
        without: tasks that the session leaves out.
    """

    master: str = ""
    lost: Mapping[str, str] = field(default_factory=dict)
    restarted: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()


def compare(
    before: Sequence[ProbeResult], now: Sequence[ProbeResult], reasons: Mapping[str, str], without: Sequence[str] = ()
) -> TaskChanges:
    """Return what has become of tasks between two times of asking.

    Args:
        before: what they answered when all was well; the master first.
        now: what they answer now.
        reasons: what is known of the ends of tasks.
        without: tasks that the session leaves out.
    """
    first = {answer.task: answer.incarnation for answer in before}
    return TaskChanges(
        without=without,
        master=before[0].task if before else "",
        lost={one.task: reasons.get(one.task) or one.error for one in now if one.error},
        restarted={
            one.task: reasons.get(one.task, "")
            for one in now
            if not one.error and one.incarnation != first.get(one.task, one.incarnation)
        },
    )


def is_task_failure(noted: str) -> bool:
    """Return whether the runner noted that a task failed."""
    return noted in (A_TASK_FAILED, A_TASK_FAILED_JUST_NOW)


def classify(kind: str, message: str, known: TaskChanges) -> Tfk8sError | None:
    """Return what an error of TensorFlow's means, or None where it is not about tasks, devices or sizes.

    Args:
        kind: the name of its class, "AbortedError".
        message: its text.
        known: what is known of the tasks.
    """
    readers: tuple[Callable[[str, str, TaskChanges], Tfk8sError | None], ...] = (
        _placement, _python_function, _size, _memory, _variable, _task,
    )  # fmt: skip
    return next(filter(None, (read(kind, message, known) for read in readers)), None)


def first_sentence(message: str) -> str:
    """Return the words of an error of TensorFlow's that say what happened, on one line."""
    words = _HEAD.sub("", message + "\n")
    return " ".join(_TAIL.split(words, maxsplit=1)[0].split()) or message.strip()


def _placement(kind: str, message: str, known: TaskChanges) -> Tfk8sError | None:
    del kind
    if (found := _PLACEMENT.search(message)) is None:
        return None
    operation, wanted, available = found.groups()
    there: dict[str, list[str]] = {}
    for device in available.split(","):
        if task := _TASK.search(device):
            there.setdefault(naming.task(task[1], int(task[2])), []).extend(_DEVICE.findall(device))
    return DeviceMissing(
        f'operation "{operation}" is pinned to {wanted}: {_what_is_missing(wanted, there, known)}',
        help="`tfk8s devices` shows what there is; a job gets GPUs by `gpus:` in the job file; with "
        "ConfigProto(allow_soft_placement=True), TensorFlow takes another device of the same task",
    )


def _what_is_missing(wanted: str, there: Mapping[str, Sequence[str]], known: TaskChanges) -> str:
    found, device = _TASK.search(wanted), _DEVICE.search(wanted)
    if found is None:
        job = re.search(r"/job:(\w+)", wanted)
        return (
            f"no task of the session has it; the session has {', '.join(there)}"
            if job or device is None
            else (f"no task has a {device[1]}")
        )
    task = naming.task(found[1], int(found[2]))
    if task in known.without:
        return f"{task} is left out of this session"
    if task not in there:
        return f"the session has no task {task}; it has {', '.join(there)}"
    kind = device[1].partition(":")[0] if device else ""
    count = sum(name.startswith(f"{kind}:") for name in there[task])
    return f"{task} has {count or 'no'} {kind}{'s' if count != 1 else ''}"


def _python_function(kind: str, message: str, known: TaskChanges) -> Tfk8sError | None:
    del kind, known
    if not _PYTHON.search(message):
        return None
    task = _mentioned(message, None)
    return InvalidInput(
        f"a Python function (py_func) can't run{' on ' + task if task else ''}: tasks run graphs, and Python functions "
        "stay in the script's process",
        help="call the function in the script and feed its result, or write it with TensorFlow's operations",
    )


def _size(kind: str, message: str, known: TaskChanges) -> Tfk8sError | None:
    del known
    return next((too_large(what) for one, words, what in _TOO_LARGE if kind == one and words in message), None)


def too_large(what: str, size: int | None = None) -> GraphTooLarge:
    """Return the error about something that no message can hold."""
    return GraphTooLarge(
        f"{what} {f'is {size / 1e9:.1f} GB' if size else 'is too large'}: one message holds at most 2 GB",
        help="let the tasks read or make the data themselves (tf.data, tf.io, variables), or pass it in parts",
    )


def _memory(kind: str, message: str, known: TaskChanges) -> Tfk8sError | None:
    del kind, known
    if (found := _MEMORY.search(message)) is None:
        return None
    shape, type_, place = found.groups()
    device, node = _DEVICE.search(place), _NODE.search(message, found.end())
    on = f" on {device[1]}" if device else ""
    operation = f' for operation "{node[1]}"' if node else ""
    return OutOfMemory(
        f"{_mentioned(place, None) or 'a task'} has too little memory{on}{operation}: "
        f"it wants a tensor of shape {shape} and type {type_}",
        help="make it in parts (smaller batches), spread it over more tasks, or give the job more memory; what earlier "
        "sessions left in variables stays until the task is restarted",
    )


def _variable(kind: str, message: str, known: TaskChanges) -> Tfk8sError | None:
    found = _UNINITIALIZED.search(message)
    changed = {**known.restarted, **known.lost}
    if kind != "FailedPreconditionError" or found is None or not changed:
        return None
    task = _mentioned(message, changed) or next(iter(changed))
    return restarted(task, changed[task], f'; variable "{found[1] or found[2]}" has no value any more')


def _task(kind: str, message: str, known: TaskChanges) -> Tfk8sError | None:
    if kind not in BROKEN:
        return None
    changed = {**known.restarted, **known.lost}
    task = _mentioned(message, changed) or (known.master if known.master in changed else next(iter(changed), ""))
    if task in known.lost:
        return lost(task, known.lost[task])
    if task in known.restarted:
        return restarted(task, known.restarted[task], _what_is_lost(task, known.master))
    if kind not in ("UnavailableError", "AbortedError"):
        return None
    where = _mentioned(message, None) or known.master or "the master"
    return TaskUnreachable(
        f"the connection to {where} broke, though all tasks answer: {first_sentence(message)}",
        help="the same call may succeed if it is made again; tfk8s.session(recover=…) opens a new session by itself",
    )


def lost(task: str, reason: str) -> TaskLost:
    """Return the error about a task that is gone."""
    return TaskLost(f"{task} was lost: {reason}", help=f"tasks are started again by themselves; {_ADVICE}")


def restarted(task: str, reason: str, consequence: str) -> TaskRestarted:
    """Return the error about a task that is another one now."""
    return TaskRestarted(f"{task} was restarted{f' ({reason})' if reason else ''}{consequence}", help=_ADVICE)


_ADVICE = (
    "tfk8s.session(recover=…) opens a new session and restores a checkpoint; "
    "`tfk8s submit --retries 3` runs the script again"
)


def _what_is_lost(task: str, master: str) -> str:
    if task == master:
        return ": sessions opened before are lost; variables on other tasks are still there"
    if task.startswith("ps/"):
        return ": its variables are lost, and so are the sessions opened before"
    return ": sessions opened before are lost, and variables if it kept any"


def _mentioned(message: str, among: Mapping[str, str] | None) -> str:
    """Return the first task that a message names, of those that matter."""
    tasks = (naming.task(job, int(index)) for job, index in _TASK.findall(message))
    return next((task for task in tasks if among is None or task in among), "")
