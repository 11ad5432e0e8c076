"""Patches of TensorFlow's sessions: their cluster, private variables, and checks of targets and sizes.

Scripts that know nothing of tfk8s get the patches by TensorFlow's session class, during the import of TensorFlow. So
this module does not import TensorFlow as a whole.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import math
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tfk8s import polling
from tfk8s.core.addresses import SCHEME, host_and_port, task_at
from tfk8s.errors import InvalidInput, WaitTimeout, listed
from tfk8s.sessions import error_names
from tfk8s.sessions.cluster import elastic_sessions, placement, reset
from tfk8s.sessions.cluster.cluster_view import PROBE_TIMEOUT, ClusterView
from tfk8s.sessions.error_names import MAX_BYTES
from tfk8s.task import probe, wire

SESSION_MODULE = "tensorflow.python.client.session"
_CHILD_TIMEOUT = 30.0  # for a server in a child process, which has to import TensorFlow

_TARGET = re.compile(rf"{SCHEME}[^/]+:[0-9]+")
_LARGE_BYTES = 1 << 20
_CLOSE_TIMEOUT = 1.0
_MAX_LISTED = 8


def check_target(
    target: object, tasks: Mapping[str, str], *, in_pod: bool = False, timeout: float | None = None
) -> None:
    """Check that a session's target is a task of the cluster, or that another TensorFlow server answers there.

    TensorFlow waits silently and for ever for a server that does not answer. The server may be one that the script has
    started in its own process, or one of a child process.

    Args:
        target: the target, "grpc://host:port"; "" is a session in this process.
        tasks: the address of each task, by its short name.
        in_pod: whether the tasks have the loopback addresses of a single machine, too.
        timeout: how many seconds to wait for a server; default: `_CHILD_TIMEOUT` if this process has children.

    Raises:
        InvalidInput: the target has another form, or no TensorFlow server answers; the help lists the addresses of
            the tasks.
    """
    text = target.decode(errors="replace") if isinstance(target, bytes) else target
    if not isinstance(text, str) or not text:  # TensorFlow itself refuses other types
        return
    address = text.removeprefix(SCHEME)
    if not _TARGET.fullmatch(text):
        raise InvalidInput(f'"{text}" is not an address of the form grpc://HOST:PORT', help=_addresses(tasks))
    if task_at(text, tasks, in_pod=in_pod):
        return
    trouble = ""

    def answers() -> bool:
        nonlocal trouble
        trouble = _probe(address)
        return not trouble

    if timeout is None:
        timeout = _CHILD_TIMEOUT if _has_children() else 0.0
    try:
        polling.wait_until(answers, f"a TensorFlow server to answer at {address}", timeout, announce=True)
    except WaitTimeout:
        raise InvalidInput(f"no TensorFlow server answers at {address}: {trouble}", help=_addresses(tasks)) from None


def _probe(address: str) -> str:
    """Return why no TensorFlow server answers at an address; "" if a server does."""
    try:
        with socket.create_connection(host_and_port(address), PROBE_TIMEOUT, all_errors=True) as stream:
            probe.get_status(stream, PROBE_TIMEOUT)
    except ExceptionGroup as errors:  # of each address: without IPv6, that of ::1 is not the reason
        reasons = [error for error in errors.exceptions if getattr(error, "errno", None) != errno.EADDRNOTAVAIL]
        reason = (reasons or errors.exceptions)[-1]
        return str(getattr(reason, "strerror", None) or reason)
    except (OSError, OverflowError, UnicodeError, wire.ProbeError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _addresses(tasks: Mapping[str, str]) -> str | None:
    if not tasks:
        return None
    shown = listed([f"{task} at {address}" for task, address in tasks.items()], _MAX_LISTED)
    return f"this cluster's tasks are {shown}; TFK8S_TARGET is the master's address"


def last_success(session: Any) -> float:
    """Return the time of a session's last successful call, by `time.monotonic`; infinity before the first one."""
    return float(getattr(session, "_tfk8s_last_success", math.inf))


opened_sessions = {True: 0, False: 0}  # the number of sessions of this process, with and without a target


def unused_cluster() -> str:
    """Return a sentence if this process has opened sessions, and all without a target; "" otherwise."""
    count = opened_sessions[False]
    if not count or opened_sessions[True]:
        return ""
    return (
        f"no session of this script used the cluster: {'its session has' if count == 1 else f'all {count} have'} no "
        "target; open sessions at os.environ['TFK8S_TARGET'], or add --on-master before SCRIPT"
    )


def patch_sessions(view: ClusterView, check: Callable[[object], None], *, isolate: bool, default: str = "") -> None:
    """Patch the sessions of this process.

    Args:
        view: the tasks, and those that sessions leave out.
        check: is called with the target of each session, and raises an error for one that would wait for ever.
        isolate: sessions share no variables with others.
        default: the target of sessions that have none.
    """
    from tensorflow.python.client.session import BaseSession

    placement.patch_sessions()
    reset.patch_sessions(view)
    make, run, close = BaseSession.__init__, BaseSession.run, BaseSession.close

    def patched_init(self: Any, target: str = "", graph: Any = None, config: Any = None) -> None:
        self._session = None  # `__del__` reads it
        target = target or default
        check(target)
        opened = elastic_sessions.open_in(view, target, config)
        self._tfk8s_master = opened.place_on
        make(self, opened.target, graph, elastic_sessions.patch_config(config, view.filters, opened, isolate=isolate))
        opened_sessions[bool(target)] += 1

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
    began = time.monotonic()  # noqa: F841 - `active_calls` reads it in this frame
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
