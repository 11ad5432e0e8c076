"""The calls of eager execution that threads of this process wait in, and the tasks that each call needs.

A call of TensorFlow 2 waits in C++, for ever if a task is frozen. Its innermost Python frame has the inputs of the
operation, and frames further out have the function. The tasks that a call needs follow from the devices of both.

A program with a ClusterCoordinator survives the loss of a worker: TensorFlow schedules the worker's functions again,
and waits until the worker is back. So no call of such a program is ended because of a worker.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfk8s.sessions.device_names import ANY_DEVICE, tasks_of
from tfk8s.sessions.eager import remote_context, silent_workers
from tfk8s.sessions.timing import TIMING
from tfk8s.task.peers.dispatchers import EXECUTE, FUNCTION

_FILES = re.compile(r"/tensorflow/python/(eager/(context|execute|executor)|framework/ops|ops/gen_\w+)\.py$")
_CONTEXT = "/tensorflow/python/eager/context.py"
_CONNECTING = ("ensure_initialized", "set_server_def", "update_server_def")
_FUNCTION_NAME = "__"  # "__inference_step_12", "__backward_step_7"


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
        return task not in remote_context.connected_tasks() or (
            task.startswith(silent_workers.WORKER) and bool(silent_workers.coordinated_workers())
        )

    def needed(self, tasks: Iterable[str]) -> list[str]:
        """Return those of the tasks that the call needs, or may need."""
        return tasks_of(self._devices(), tasks)

    def _devices(self) -> set[str]:
        """Return the devices that the call needs, with `ANY_DEVICE` if they can't be known."""
        waiting = self.stack[0]
        inputs = list(_tensors(waiting.f_locals.values()))
        devices = {tensor.device for tensor in inputs}
        if not waiting.f_code.co_filename.endswith(EXECUTE):
            # The device of a waiting operation is hidden, unless a resource has it.
            is_known = any(str(tensor.dtype).endswith("'resource'>") for tensor in inputs)
            return devices if is_known else {ANY_DEVICE}
        devices.add(str(waiting.f_locals.get("device_name")))
        functions = [frame.f_locals["self"] for frame in self.stack if frame.f_code.co_filename.endswith(FUNCTION)]
        if functions:
            return devices | _function_devices(functions[0])
        # An operation, or a function of an older TensorFlow.
        return {ANY_DEVICE} if _FUNCTION_NAME in str(waiting.f_locals.get("op_name")) else devices


def eager_call(stack: Sequence[types.FrameType], *, is_background: bool) -> EagerCall | None:
    """Return the call that a stack, from its innermost frame outwards, waits in."""
    return EagerCall(stack, is_background) if stack and _FILES.search(stack[0].f_code.co_filename) else None


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _tensors(value)
        elif type(value).__name__ == "EagerTensor":
            yield value


def _function_devices(function: Any) -> set[str]:
    """Return the devices that a function names, and those of the functions that it calls."""
    definition = getattr(function, "cached_definition", None)
    if definition is None:  # in older versions of TensorFlow
        return {ANY_DEVICE}
    return {node.device for node in definition.node_def}.union(*map(_function_devices, function.children))
