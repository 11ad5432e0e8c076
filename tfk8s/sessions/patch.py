"""Patches of TensorFlow's sessions: tasks that they leave out, private variables, and a check of sizes.

Scripts that know nothing of tfk8s get the patches by TensorFlow's session class, during the import of TensorFlow. So
this module does not import TensorFlow as a whole.
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
from tfk8s.sessions.error_names import MAX_BYTES

SESSION_MODULE = "tensorflow.python.client.session"

_LARGE_BYTES = 1 << 20
_CLOSE_TIMEOUT = 1.0


def patch_config(config: Any, filters: Sequence[str], *, isolate: bool = False) -> Any:
    """Return a `ConfigProto` with device filters, unless it has others, and with isolated state if that is wanted."""
    if not filters and not isolate:
        return config
    from tensorflow.core.protobuf import config_pb2

    patched = config_pb2.ConfigProto()
    if config is not None:
        patched.CopyFrom(config)
    if not patched.device_filters:
        patched.device_filters.extend(filters)
    patched.isolate_session_state = patched.isolate_session_state or isolate
    return patched


def last_success(session: Any) -> float:
    """Return the time of a session's last successful call, by `time.monotonic`; infinity before the first one."""
    return float(getattr(session, "_tfk8s_last_success", math.inf))


def patch_sessions(filters: Sequence[str], *, isolate: bool) -> None:
    """Patch the sessions of this process.

    Args:
        filters: `ConfigProto.device_filters`, which leave tasks out.
        isolate: sessions share no variables with others.
    """
    from tensorflow.python.client.session import BaseSession

    make, run, close = BaseSession.__init__, BaseSession.run, BaseSession.close

    def patched_init(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        make(self, target, graph, patch_config(config, filters, isolate=isolate))

    @functools.wraps(run)
    def patched_run(
        self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        try:
            return run_checked(self, feed_dict, lambda: run(self, fetches, feed_dict, options, run_metadata))
        except Exception as error:
            self._tfk8s_is_broken = type(error).__name__ in error_names.BROKEN
            raise

    @functools.wraps(close)
    def patched_close(self: Any) -> None:
        close_with_timeout(lambda: close(self)) if getattr(self, "_tfk8s_is_broken", False) else close(self)

    BaseSession.__init__, BaseSession.run, BaseSession.close = patched_init, patched_run, patched_close


def run_checked(session: Any, feed_dict: Any, run: Callable[[], Any]) -> Any:
    """Return the result of a session's call, and note the time of its success.

    Raises:
        GraphTooLarge: the call sends more than a message can hold.
        KeyboardInterrupt: Ctrl-C came while C++ raised an exception, and pybind11 gave up on both.
    """
    check_sizes(session, feed_dict)
    try:
        result = run()
    except RuntimeError as error:
        if "REPLACED BY KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from None
        raise
    session._tfk8s_last_success = time.monotonic()
    return result


def close_with_timeout(close: Callable[[], object], timeout: float = _CLOSE_TIMEOUT) -> bool:
    """Close a broken session; return False if that takes more than `timeout` seconds.

    A session waits for a task that is gone. It also waits for a restarted task, until the master has the new address.
    """

    def attempt() -> None:
        with contextlib.suppress(Exception):  # a restarted master does not know the session
            close()

    closing = threading.Thread(target=attempt, name="tfk8s-close", daemon=True)
    closing.start()
    closing.join(timeout)
    return not closing.is_alive()


def check_sizes(session: Any, feed_dict: Any) -> None:
    """Check that a message can hold the feed and the graph.

    TensorFlow would abort the process instead ("Check failed: serializer_").

    Raises:
        GraphTooLarge: a message can't; the text has the size.
    """
    if isinstance(feed_dict, dict):
        fed = sum(getattr(value, "nbytes", 0) for value in feed_dict.values())
        if fed > MAX_BYTES:
            raise error_names.too_large("what is fed to the graph", fed)
    graph = session.graph
    if graph.version != getattr(session, "_tfk8s_checked", 0):
        session._tfk8s_checked = graph.version
        constants = [operation for operation in graph.get_operations() if operation.type == "Const"]
        if sum(map(_elements_bytes, constants)) > MAX_BYTES and (size := sum(map(_node_bytes, constants))) > MAX_BYTES:
            raise error_names.too_large("the graph, by its constants,", size)


def _elements_bytes(constant: Any) -> int:
    output = constant.outputs[0]
    return (output.shape.num_elements() or 0) * (output.dtype.size or 1)


def _node_bytes(constant: Any) -> int:
    """Return a constant's size in a message, which is small if the constant repeats one value.

    `_node_def` is that message. `node_def` would copy it once more, which takes a second per gigabyte.
    """
    return len(constant._node_def) if _elements_bytes(constant) > _LARGE_BYTES else 0
