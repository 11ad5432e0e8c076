"""The calls of TensorFlow that threads of this process wait in, and the tasks that each call of a session needs.

A call of `Session.run` waits in C++, which says nothing about the call. But its Python frames have what the call
fetches, and the graph has the tasks on which that depends. A call that does not need a lost task does not wait for it.
"""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tfk8s.sessions import patch
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.device_names import ANY_DEVICE, may_have, tasks_of
from tfk8s.sessions.eager.waits import EagerCall, eager_call
from tfk8s.sessions.timing import TIMING
from tfk8s.task.stack_frames import current_frames, stack_of

_SESSION = "tensorflow/python/client/session.py"
_RECOVERING = "tensorflow/python/training/monitored_session.py"
# The work of such operations is in functions, outside the graph.
_CALLS_FUNCTIONS = ("PartitionedCall", "While", "If", "Case")


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call that a thread waits in.

    Attributes:
        frames: of TensorFlow's session module, from the call inwards; none for a call of another process.
        timeout: how many seconds to give the call after a loss.
    """

    frames: tuple[types.FrameType, ...] = ()
    timeout: float = TIMING.call_timeout
    is_background: ClassVar[bool] = False  # Ctrl-C ends the calls of all threads

    @property
    def opens(self) -> bool:
        """The call opens the session, as the first call does; opening waits for all tasks."""
        return bool(self.frames) and self.frames[-1].f_code.co_name == "_extend_graph"

    @property
    def session(self) -> Any:
        """The session; None if the call is not a session's method."""
        return self.frames[0].f_locals.get("self") if self.frames else None

    @property
    def target(self) -> str:
        """The address that the session connects to, "grpc://host:port"; "" if unknown."""
        target = getattr(self.session, "sess_str", "")
        return target.decode() if isinstance(target, bytes) else str(target)

    def master(self, view: ClusterView) -> str:
        """Return the task that the session is connected to; the cluster's master if unknown."""
        return view.task_at(self.target) or view.master

    def leaves_out(self, task: str) -> bool:
        """Return whether the device filters of the session leave a task out. They never leave out its own master."""
        filters = getattr(getattr(self.session, "_config", None), "device_filters", ())
        return bool(filters) and not any(may_have(task, device) for device in filters)

    def needed(self, tasks: Iterable[str]) -> list[str]:
        """Return those of the tasks that the call needs, besides the session's master; all if that can't be known."""
        for frame in self.frames:
            if frame.f_code.co_name == "_do_run":
                local = frame.f_locals
                operations = [*local["target_list"], *(tensor.op for tensor in local["fetch_list"])]
                devices = devices_of(operations, {tensor.deref().op for tensor in local["feed_dict"]})
                return tasks_of(devices, tasks)
        return list(tasks)


AnyCall = Call | EagerCall


def active_calls() -> dict[Hashable, AnyCall]:
    """Return the calls that threads of this process wait in now, by their outermost frame of TensorFlow.

    Calls that close a session on a thread of their own, as TensorFlow and tfk8s do after a loss, keep nobody waiting.
    """
    main = threading.main_thread().ident
    return {
        call.frames[0]: call
        for thread, (call, _) in _calls().items()
        if thread == main or call.frames[0].f_code.co_name != "close"
    }


def describe_calls(view: ClusterView, threads: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return the calls of threads that wait as plain data, by the identifier of the thread.

    The other threads may run, and CPython 3.11 can't read the frames of such threads safely. A call has the tasks that
    it needs, the seconds since its begin, and the begin as the key of the call; these two are None if unknown.
    """
    tasks = [task for task in view.addresses if task not in view.without]
    found = {}
    for thread, (call, stack) in _calls(threads).items():
        began = _began(stack)
        seconds = None if began is None else round(time.monotonic() - began, 1)
        found[thread] = {"key": began, "seconds": seconds, "needs": needed_tasks(call, tasks, view)}
    return found


def needed_tasks(call: AnyCall, tasks: Iterable[str], view: ClusterView) -> list[str]:
    """Return those of the tasks that a call needs. Opening a session waits for all tasks."""
    taken = [task for task in tasks if not call.leaves_out(task)]
    needed = {call.master(view), *(taken if call.opens else call.needed(taken))}
    return [task for task in tasks if task in needed]


def _calls(threads: Collection[int] | None = None) -> dict[int, tuple[AnyCall, list[types.FrameType]]]:
    """Return the call of each thread that waits in one, with the stack of the thread; None means all threads."""
    main = threading.main_thread().ident
    current = current_frames().items()
    stacks = {thread: list(stack_of(frame)) for thread, frame in current if threads is None or thread in threads}
    found = {
        thread: (_call(stack) or eager_call(stack, is_background=thread != main), stack)
        for thread, stack in stacks.items()
    }
    return {thread: (call, stack) for thread, (call, stack) in found.items() if call is not None}


def _began(stack: Sequence[types.FrameType]) -> float | None:
    """Return the begin of a session's call, which `patch.run_checked` has noted."""
    for frame in stack:
        if frame.f_code is patch.run_checked.__code__ and "began" in frame.f_locals:
            return float(frame.f_locals["began"])
    return None


def _call(stack: list[types.FrameType]) -> Call | None:
    """Return the call of a session that a stack, from its innermost frame, waits in."""
    frames = tuple(frame for frame in reversed(stack) if frame.f_code.co_filename.endswith(_SESSION))
    if not frames:
        return None
    if any(frame.f_code.co_filename.endswith(_RECOVERING) for frame in stack):
        return Call(frames, TIMING.recovering_timeout)
    timeout = getattr(Call(frames).session, "loss_timeout", TIMING.call_timeout)
    return Call(frames, max(timeout, TIMING.opening_timeout) if Call(frames).opens else timeout)


def devices_of(operations: list[Any], fed: set[Any]) -> set[str]:
    """Return the devices of operations and of those that they take their inputs from, perhaps with `ANY_DEVICE`.

    Args:
        operations: the operations; the list is used up.
        fed: operations whose output the session feeds, so that they do not run.
    """
    devices: set[str] = set()
    seen = set(operations)
    while operations:
        operation = operations.pop()
        devices.add(ANY_DEVICE if operation.type.endswith(_CALLS_FUNCTIONS) else operation.device)
        inputs = [*operation.control_inputs, *(tensor.op for tensor in operation.inputs)]
        new = [source for source in inputs if source not in seen and source not in fed]
        seen.update(new)
        operations.extend(new)
    return devices
