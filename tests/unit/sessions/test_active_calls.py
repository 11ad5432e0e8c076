"""Which tasks a call needs, from a graph of stand-ins."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tfk8s.sessions import active_calls


class Operation(SimpleNamespace):
    __hash__ = object.__hash__


def operation(device: str = "", *inputs: object, kind: str = "Add", after: tuple[object, ...] = ()) -> Operation:
    own = [SimpleNamespace(op=one) for one in inputs]
    return Operation(device=device, type=kind, control_inputs=list(after), inputs=own)


@pytest.mark.parametrize(
    ("device", "needed"),
    [
        ("/job:worker/task:1", True),
        ("/job:worker/replica:0/task:1/device:CPU:0", True),
        ("/job:worker", True),
        ("/job:worker/task:0", False),
        ("/job:worker/task:10", False),
        ("/job:worker_/task:1", False),
        ("/device:CPU:0", False),
        ("", False),
    ],
)
def test_a_task_is_needed_by_what_runs_on_it(device: str, needed: bool) -> None:
    behind = operation(device)
    assert active_calls._depend_on([operation("", operation("", behind))], set(), "worker/1") == needed
    assert active_calls._depend_on([operation("", after=(behind,))], set(), "worker/1") == needed


def test_what_is_fed_needs_nothing() -> None:
    fed = operation("/job:ps/task:0", operation("/job:worker/task:1"))
    assert not active_calls._depend_on([operation("", fed)], {fed}, "worker/1")


def test_a_loop_is_walked_once_and_functions_may_do_anything() -> None:
    first, second = operation(), operation()
    first.inputs, second.inputs = [SimpleNamespace(op=second)], [SimpleNamespace(op=first)]
    assert not active_calls._depend_on([first], set(), "worker/1")
    assert active_calls._depend_on([operation("", operation(kind="StatefulPartitionedCall"))], set(), "worker/1")


def in_a_thread(function: str) -> tuple[threading.Event, threading.Thread]:
    """Start a thread that sits in a function of a file that is called as TensorFlow's session module is."""
    there, leave = threading.Event(), threading.Event()
    names = {"there": there, "leave": leave}
    text = f"def {function}(self=None):\n    there.set()\n    leave.wait(60)\n"
    exec(compile(text, "/somewhere/tensorflow/python/client/session.py", "exec"), names)  # noqa: S102
    thread = threading.Thread(target=names[function])
    thread.start()
    assert there.wait(60)
    return leave, thread


@pytest.mark.parametrize(("function", "counts"), [("run", True), ("_extend_graph", True), ("close", False)])
def test_a_session_that_is_closed_aside_is_no_call(function: str, counts: bool) -> None:
    leave, thread = in_a_thread(function)
    try:
        found = list(active_calls.active_calls().values())
    finally:
        leave.set()
        thread.join(60)
    assert len(found) == counts
    if found:
        assert found[0].opens == (function == "_extend_graph")
        assert found[0].needs("worker/1")
        assert found[0].patience == (9.0 if function == "_extend_graph" else 3.0)
