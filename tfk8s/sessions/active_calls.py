"""Which calls of TensorFlow's sessions this process is in, and which tasks each of them needs.

A call of `Session.run` sits in C++, where nothing can be asked of it. But its Python frames know what it fetches, and
the graph knows on which tasks that depends: a call that does not need a lost task does not wait for it.
"""

from __future__ import annotations

import re
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfk8s.core import naming

PATIENCE = 3.0  # seconds; TensorFlow reports most losses itself within this time
LEAST_PATIENCE = 1.0  # and mostly within this
OPENING_PATIENCE = 9.0  # opening a session waits for all tasks, and a task may be about to come back
RECOVERING_PATIENCE = 30.0  # for callers that go on after a loss: TensorFlow reports a master's up to 11 s later

_SESSION = "tensorflow/python/client/session.py"
_RECOVERING = "tensorflow/python/training/monitored_session.py"
_JOB = re.compile(r"/job:(\w+)(?:/replica:\d+)?(?:/task:(\d+))?")
# What such operations do stands in functions, not in the graph.
_CALLS_FUNCTIONS = ("PartitionedCall", "While", "If", "Case")


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call that a thread is in.

    Attributes:
        frame: what tells it from the next call.
        frames: of TensorFlow's session module, from the call inwards.
        patience: how many seconds to give it after a loss.
    """

    frame: types.FrameType
    frames: tuple[types.FrameType, ...]
    patience: float

    @property
    def opens(self) -> bool:
        """Whether it opens the session, which TensorFlow does with the first call; that waits for all tasks."""
        return self.frames[-1].f_code.co_name == "_extend_graph"

    @property
    def session(self) -> Any:
        """The session, or None where the call is not a session's method."""
        return self.frame.f_locals.get("self")

    @property
    def without(self) -> frozenset[str]:
        """The tasks that the session leaves out."""
        found: frozenset[str] = getattr(self.session, "without", frozenset())
        return found

    def needs(self, task: str) -> bool:
        """Return whether it needs a task other than the master; True where that can't be known."""
        for frame in self.frames:
            if frame.f_code.co_name == "_do_run":
                known = frame.f_locals
                wanted = [*known["target_list"], *(tensor.op for tensor in known["fetch_list"])]
                fed = {tensor.deref().op for tensor in known["feed_dict"]}
                return _depend_on(wanted, fed, task)
        return True


def active_calls() -> dict[types.FrameType, Call]:
    """Return the calls of sessions that threads of this process are in now.

    A session that is being closed aside, as TensorFlow's and tfk8s' are after a loss, keeps nobody waiting.
    """
    main = threading.main_thread().ident
    found = {thread: _call(list(_stack(frame))) for thread, frame in sys._current_frames().items()}
    return {
        call.frame: call
        for thread, call in found.items()
        if call is not None and (thread == main or call.frame.f_code.co_name != "close")
    }


def _stack(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _call(stack: list[types.FrameType]) -> Call | None:
    """Return the call of a session that a stack, from its innermost frame, is in."""
    frames = tuple(frame for frame in reversed(stack) if frame.f_code.co_filename.endswith(_SESSION))
    if not frames:
        return None
    recovers = any(frame.f_code.co_filename.endswith(_RECOVERING) for frame in stack)
    own = getattr(frames[0].f_locals.get("self"), "patience", PATIENCE)
    patience = max(own, OPENING_PATIENCE if frames[-1].f_code.co_name == "_extend_graph" else 0.0)
    return Call(frames[0], frames, RECOVERING_PATIENCE if recovers else patience)


def _depend_on(wanted: list[Any], fed: set[Any], task: str) -> bool:
    """Return whether operations, or what they take their inputs from, run on a task."""
    seen = set(wanted)
    while wanted:
        operation = wanted.pop()
        if _may_run_on(operation, task):
            return True
        inputs = [*operation.control_inputs, *(tensor.op for tensor in operation.inputs)]
        new = [one for one in inputs if one not in seen and one not in fed]
        seen.update(new)
        wanted.extend(new)
    return False


def _may_run_on(operation: Any, task: str) -> bool:
    if operation.type.endswith(_CALLS_FUNCTIONS):
        return True
    named = _JOB.search(operation.device)
    if named is None:  # the master's
        return False
    return naming.task(named[1], int(named[2])) == task if named[2] else task.startswith(f"{named[1]}/")
