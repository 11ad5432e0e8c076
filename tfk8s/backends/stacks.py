"""The answers to `tfk8s stacks`: the work of tasks and scripts now, from `task/programs/inspector.py`, and in words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfk8s.backends.plain_data import as_plain, from_plain
from tfk8s.core.progress import duration
from tfk8s.core.status import ClusterStatus

_STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "waits for a disk or a device", "Z": "ended"}


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One frame of a Python stack.

    Attributes:
        file, line, function: the place, as Python's tracebacks have it.
        source: the text of the line; "" if unknown.
    """

    file: str
    line: int
    function: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowCall:
    """A call of TensorFlow or Keras that a thread is in.

    Attributes:
        name: the module and the function: `session.run`.
        seconds: the time since the begin of the call; None if unknown.
        needs: the tasks that the call needs; None if unknown.
        is_same: whether the call was the same at both looks; None if unknown.
    """

    name: str
    seconds: float | None = None
    needs: tuple[str, ...] | None = None
    is_same: bool | None = None


@dataclass(frozen=True, slots=True)
class PythonThread:
    """A thread of Python code.

    Attributes:
        name: the thread's name.
        is_main: whether it is the main thread.
        frames: the stack, the innermost frame last.
        call: the call of TensorFlow; None for other code.
    """

    name: str
    is_main: bool
    frames: tuple[StackFrame, ...]
    call: TensorFlowCall | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStacks:
    """A process at one moment.

    Attributes:
        pid: the process id, beside the process.
        state: the letter of the main thread's state; "" if the process has ended.
        computes: whether its threads use a CPU.
        threads: the Python threads, the main thread first; None if the process answers nobody, as servers in C++ do.
        problem: why Python threads are missing; "" if nothing is wrong.
    """

    pid: int
    state: str
    computes: bool
    threads: tuple[PythonThread, ...] | None = None
    problem: str = ""

    @property
    def is_stopped(self) -> bool:
        """True if a signal or a debugger has stopped the process."""
        return self.state in ("T", "t")

    @property
    def activity(self) -> str:
        """The work of the process, in words."""
        if not self.state:
            return "ended"
        return _STATES.get(self.state) or ("computes" if self.computes else "waits")


@dataclass(frozen=True, slots=True)
class Stacks:
    """A task or a script at one moment.

    Attributes:
        name: the name, "worker/1", "script-4e9c21" or "pid 4711".
        processes: its main processes.
        problem: why nothing is known; "" if something is.
    """

    name: str
    processes: tuple[ProcessStacks, ...] = ()
    problem: str = ""

    @property
    def computes(self) -> bool:
        """True if a process is known to use a CPU."""
        return any(process.computes for process in self.processes)

    @property
    def activity(self) -> str:
        """The work of the task or the script, in words."""
        return self.problem or "; ".join(process.activity for process in self.processes)

    @property
    def calls(self) -> list[TensorFlowCall]:
        """The calls of TensorFlow that the threads are in."""
        threads = [thread for process in self.processes for thread in process.threads or ()]
        return [thread.call for thread in threads if thread.call is not None]


def parse(name: str, documents: Iterable[Mapping[str, Any]]) -> Stacks:
    """Return the stacks that `task/programs/inspector.py` has printed. It may run in a pod, which may send anything."""
    try:
        return Stacks(name, tuple(from_plain(ProcessStacks, as_plain(_process(document))) for document in documents))
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return Stacks(name, problem="its processes gave an answer that can't be read")


def _process(document: Mapping[str, Any]) -> ProcessStacks:
    python = document["python"]
    return ProcessStacks(
        pid=document["pid"], state=document["state"], computes=document["computes"], problem=document["problem"],
        threads=None if python is None else tuple(map(_thread, python)),
    )  # fmt: skip


def _thread(document: Mapping[str, Any]) -> PythonThread:
    call = document["call"]
    frames = tuple(StackFrame(*frame) for frame in document["frames"])
    return PythonThread(document["name"], document["is_main"], frames, None if call is None else _call(call))


def _call(document: Mapping[str, Any]) -> TensorFlowCall:
    needs = document.get("needs")
    return TensorFlowCall(
        name=document["name"], seconds=document.get("seconds"), is_same=document.get("is_same"),
        needs=None if needs is None else tuple(needs),
    )  # fmt: skip


def needed_by(found: Iterable[Stacks]) -> dict[str, list[str]]:
    """Return the tasks that calls need, each with the names of those whose calls need the task."""
    names: dict[str, list[str]] = {}
    for other in found:
        for task in dict.fromkeys(task for call in other.calls for task in call.needs or ()):
            names.setdefault(task, []).append(other.name)
    return names


def explainer(status: ClusterStatus, found: Iterable[Stacks]) -> Callable[[TensorFlowCall], str]:
    """Return a function that says in words what a call waits for. TensorFlow does not tell; the states of the tasks do.

    Args:
        status: the status of the cluster.
        found: the tasks and scripts that were looked at.
    """
    tasks = {entry.name: entry for entry in found}
    troubles = {str(task.task): task.reason or task.phase.lower() for task in status.tasks if not task.is_up}
    return functools.partial(_explain, tasks=tasks, troubles=troubles)


def _explain(call: TensorFlowCall, tasks: Mapping[str, Stacks], troubles: Mapping[str, str]) -> str:
    since = "" if call.seconds is None or call.is_same is False else f" for {_time(call.seconds)}"
    text = f"in TensorFlow's {call.name}{since}"
    if call.needs is None:
        return text
    if call.is_same is False:
        return f"{text}, again and again: the script moves"
    if not call.needs:
        return f"{text}; the call needs no task"
    return f"{text}; {_waits_for(call.needs, tasks, troubles)}"


def _waits_for(needs: Sequence[str], tasks: Mapping[str, Stacks], troubles: Mapping[str, str]) -> str:
    lost = [f"{name} ({reason.partition(';')[0]})" for name in needs if (reason := _trouble(name, tasks, troubles))]
    if lost:
        return f"waits for {', '.join(lost)}"
    if busy := [f"{name} (computes)" for name in needs if name in tasks and tasks[name].computes]:
        return f"waits for {', '.join(busy)}"
    unseen = [name for name in needs if name not in tasks]
    if unseen:
        return f"needs {', '.join(needs)}"
    return f"needs {', '.join(needs)}; no task computes: all wait for a queue, a lock, data or the network"


def _trouble(name: str, tasks: Mapping[str, Stacks], troubles: Mapping[str, str]) -> str:
    """Return why a task can't answer now; "" if nothing is known of that."""
    if name in troubles:
        return troubles[name]
    seen = tasks.get(name)
    stopped = seen is not None and any(process.is_stopped or not process.state for process in seen.processes)
    return seen.activity if seen is not None and stopped else ""


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)
