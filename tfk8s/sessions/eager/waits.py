"""The calls of eager execution that threads of this process wait in, and the tasks that each call needs.

A call of TensorFlow 2 waits in C++, for ever if a task is frozen. Its innermost Python frame has the inputs of the
operation, and frames further out have the function. The tasks that a call needs follow from the devices of both.

A program with a ClusterCoordinator survives the loss of a worker: TensorFlow schedules the worker's functions again,
and waits until the worker is back. So no call of such a program is ended because of a worker.
"""

from __future__ import annotations

import re
import threading
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfk8s.core import naming
from tfk8s.sessions.eager import remote_context
from tfk8s.sessions.timing import TIMING

_FILES = re.compile(r"/tensorflow/python/(eager/(context|execute|executor)|framework/ops|ops/gen_\w+)\.py$")
_CONTEXT = "/tensorflow/python/eager/context.py"
_EXECUTE = "/tensorflow/python/eager/execute.py"
_FUNCTION = "/tensorflow/python/eager/polymorphic_function/atomic_function.py"
_CONNECTING = ("ensure_initialized", "set_server_def", "update_server_def")
_COORDINATOR_THREAD = "WorkerClosureProcessingLoop-"  # of each worker, in cluster_coordinator.py
_WORKER = "worker/"
_FUNCTION_NAME = "__"  # "__inference_step_12", "__backward_step_7"
_TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")


@dataclass(frozen=True, slots=True, eq=False)
class EagerCall:
    """A call of eager execution; it has no session.

    Attributes:
        stack: the frames, from the innermost outwards.
        is_background: whether another thread than the main one waits.
    """

    stack: Sequence[types.FrameType]
    is_background: bool

    @property
    def frames(self) -> Sequence[types.FrameType]:
        """The frame that waits."""
        return self.stack[:1]

    @property
    def session(self) -> None:
        """None."""

    @property
    def opens(self) -> bool:
        """The call connects to the tasks, which waits for all of them."""
        code = self.stack[0].f_code
        return code.co_filename.endswith(_CONTEXT) and code.co_name in _CONNECTING

    @property
    def timeout(self) -> float:
        """The seconds to give the call after a loss."""
        return TIMING.opening_timeout if self.opens else TIMING.call_timeout

    def master(self, view: object) -> str:
        """Return "": no task has a special role."""
        del view
        return ""

    def leaves_out(self, task: str) -> bool:
        """Return whether this process did not connect to a task, or survives its loss."""
        return task not in remote_context.connected_tasks() or (task.startswith(_WORKER) and has_coordinator())

    def needed(self, tasks: Iterable[str]) -> list[str]:
        """Return those of the tasks that the call needs, or may need."""
        return [task for task in tasks if self.needs(task)]

    def needs(self, task: str) -> bool:
        """Return whether the call needs a task; True if that can't be known."""
        waiting = self.stack[0]
        inputs = list(_tensors(waiting.f_locals.values()))
        if any(_is_on(tensor.device, task) for tensor in inputs):
            return True
        if not waiting.f_code.co_filename.endswith(_EXECUTE):
            # The device of a waiting operation is hidden, unless a resource has it.
            return not any(str(tensor.dtype).endswith("'resource'>") for tensor in inputs)
        if _is_on(str(waiting.f_locals.get("device_name")), task):
            return True
        functions = [frame.f_locals["self"] for frame in self.stack if frame.f_code.co_filename.endswith(_FUNCTION)]
        if not functions:  # an operation, or a function of an older TensorFlow
            return _FUNCTION_NAME in str(waiting.f_locals.get("op_name"))
        return _function_needs(functions[0], task)


def eager_call(stack: Sequence[types.FrameType], *, is_background: bool) -> EagerCall | None:
    """Return the call that a stack, from its innermost frame outwards, waits in."""
    return EagerCall(stack, is_background) if stack and _FILES.search(stack[0].f_code.co_filename) else None


def has_coordinator() -> bool:
    """Return whether a ClusterCoordinator of this process gives work to the workers."""
    return any(thread.name.startswith(_COORDINATOR_THREAD) for thread in threading.enumerate())


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _tensors(value)
        elif type(value).__name__ == "EagerTensor":
            yield value


def _function_needs(function: Any, task: str) -> bool:
    """Return whether a function, or one that it calls, names a device of a task."""
    definition = getattr(function, "cached_definition", None)
    if definition is None:  # in older versions of TensorFlow
        return True
    nodes = definition.node_def
    return any(_is_on(node.device, task) for node in nodes) or any(
        _function_needs(child, task) for child in function.children
    )


def _is_on(device: str, task: str) -> bool:
    match = _TASK.search(device)
    return match is not None and naming.task(match[1], int(match[2])) == task
