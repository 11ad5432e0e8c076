"""What every session of a script gets: tasks that it leaves out, variables of its own, and a check of sizes.

Scripts that know nothing of tfk8s get it by TensorFlow's session class, as soon as that has been imported. That is
within the import of TensorFlow, so nothing here may import TensorFlow as a whole.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfk8s.sessions import error_names
from tfk8s.sessions.error_names import MOST_BYTES

SESSION_MODULE = "tensorflow.python.client.session"

_LARGE = 1 << 20
_CLOSE_SECONDS = 1.0


def patched_constructor(config: Any, filters: Sequence[str], *, isolate: bool = False) -> Any:
    """Return a `ConfigProto` with more wishes; filters that it has itself stay."""
    if not filters and not isolate:
        return config
    from tensorflow.core.protobuf import config_pb2

    own = config_pb2.ConfigProto()
    if config is not None:
        own.CopyFrom(config)
    if not own.device_filters:
        own.device_filters.extend(filters)
    own.isolate_session_state = own.isolate_session_state or isolate
    return own


def worked_last(session: Any) -> float:
    """Return when a call of a session came to a good end, by `time.monotonic`; infinity where none did yet."""
    return float(getattr(session, "_tfk8s_worked", math.inf))


def patch_sessions(filters: Sequence[str], *, isolate: bool) -> None:
    """Have every session of this process leave tasks out, keep its variables to itself, refuse what is too large."""
    from tensorflow.python.client.session import BaseSession

    make, run, close = BaseSession.__init__, BaseSession.run, BaseSession.close

    def constrained_init(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        make(self, target, graph, patched_constructor(config, filters, isolate=isolate))

    @functools.wraps(run)
    def checked_run(
        self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        try:
            return checked(self, feed_dict, lambda: run(self, fetches, feed_dict, options, run_metadata))
        except Exception as error:
            self._tfk8s_broken = type(error).__name__ in error_names.BROKEN
            raise

    @functools.wraps(close)
    def brief_close(self: Any) -> None:
        close_aside(lambda: close(self)) if getattr(self, "_tfk8s_broken", False) else close(self)

    BaseSession.__init__, BaseSession.run, BaseSession.close = constrained_init, checked_run, brief_close


def checked(session: Any, feed_dict: Any, run: Callable[[], Any]) -> Any:
    """Return what a call of a session returns, and note that it worked.

    Raises:
        GraphTooLarge: no message can hold what it sends.
        KeyboardInterrupt: Ctrl-C came as C++ made its exception; pybind11 gives up on both.
    """
    check_sizes(session, feed_dict)
    try:
        found = run()
    except RuntimeError as error:
        if "REPLACED BY KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from None
        raise
    session._tfk8s_worked = time.monotonic()
    return found


def close_aside(close: Callable[[], object]) -> bool:
    """Close a session that has failed; return whether it came to that.

    One whose task is gone would wait for it, and is left to itself after a moment.

    It would wait for a task that was made anew too, for as long as the master knows the address of before only.
    """

    def attempt() -> None:
        with contextlib.suppress(Exception):  # a master that was started again does not know it
            close()

    closing = threading.Thread(target=attempt, name="tfk8s-close", daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
    return not closing.is_alive()


def check_sizes(session: Any, feed_dict: Any) -> None:
    """Refuse what no message can hold: given it, TensorFlow aborts the process ("Check failed: serializer_").

    Raises:
        GraphTooLarge: says by what.
    """
    if isinstance(feed_dict, dict):
        fed = sum(getattr(value, "nbytes", 0) for value in feed_dict.values())
        if fed > MOST_BYTES:
            raise error_names.too_large("what is fed to the graph", fed)
    graph = session.graph
    if graph.version != getattr(session, "_tfk8s_checked", 0):
        session._tfk8s_checked = graph.version
        constants = [one for one in graph.get_operations() if one.type == "Const"]
        if (
            sum(map(_elements_bytes, constants)) > MOST_BYTES
            and (size := sum(map(_node_bytes, constants))) > MOST_BYTES
        ):
            raise error_names.too_large("the graph, by its constants,", size)


def _elements_bytes(constant: Any) -> int:
    output = constant.outputs[0]
    return (output.shape.num_elements() or 0) * (output.dtype.size or 1)


def _node_bytes(constant: Any) -> int:
    """Return what a constant takes in a message: one that repeats a value takes next to nothing.

    `_node_def` is that message, of which `node_def` would make a copy more: a second of time for each gigabyte.
    """
    return len(constant._node_def) if _elements_bytes(constant) > _LARGE else 0
