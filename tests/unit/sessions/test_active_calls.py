"""The tasks that a call needs, in a graph of stand-ins."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tfk8s.sessions import active_calls


class Operation(SimpleNamespace):
    __hash__ = object.__hash__


def operation(device: str = "", *inputs: object, kind: str = "Add", after: tuple[object, ...] = ()) -> Operation:
    tensors = [SimpleNamespace(op=source) for source in inputs]
    return Operation(device=device, type=kind, control_inputs=list(after), inputs=tensors)


OPERATIONS = [
    ("/job:worker/task:1", True),
    ("/job:worker/replica:0/task:1/device:CPU:0", True),
    ("/job:worker", True),
    ("/job:worker/task:0", False),
    ("/job:worker/task:10", False),
    ("/job:worker_/task:1", False),
    ("/device:CPU:0", False),
    ("", False),
]


def test_operation_needs_the_task_of_its_device() -> None:
    for device, needed in OPERATIONS:
        behind = operation(device)
        assert active_calls.depends_on([operation("", operation("", behind))], set(), "worker/1") == needed, device
        assert active_calls.depends_on([operation("", after=(behind,))], set(), "worker/1") == needed, device


def test_fed_operation_needs_nothing() -> None:
    fed = operation("/job:ps/task:0", operation("/job:worker/task:1"))
    assert not active_calls.depends_on([operation("", fed)], {fed}, "worker/1")


def test_loops_end_and_functions_may_need_any_task() -> None:
    first, second = operation(), operation()
    first.inputs, second.inputs = [SimpleNamespace(op=second)], [SimpleNamespace(op=first)]
    assert not active_calls.depends_on([first], set(), "worker/1")
    assert active_calls.depends_on([operation("", operation(kind="StatefulPartitionedCall"))], set(), "worker/1")


def in_a_thread(function: str) -> tuple[threading.Event, threading.Thread]:
    """Start a thread that waits in a function of a file with the name of TensorFlow's session module."""
    entered, leave = threading.Event(), threading.Event()
    names = {"entered": entered, "leave": leave}
    text = f"def {function}(self=None):\n    entered.set()\n    leave.wait(60)\n"
    exec(compile(text, "/somewhere/tensorflow/python/client/session.py", "exec"), names)  # noqa: S102
    thread = threading.Thread(target=names[function])
    thread.start()
    assert entered.wait(60)
    return leave, thread


@pytest.mark.parametrize(("function", "counts"), [("run", True), ("_extend_graph", True), ("close", False)])
def test_close_on_another_thread_is_no_call(function: str, counts: bool) -> None:
    leave, thread = in_a_thread(function)
    try:
        calls = list(active_calls.active_calls().values())
    finally:
        leave.set()
        thread.join(60)
    assert len(calls) == counts
    if calls:
        assert calls[0].opens == (function == "_extend_graph")
        assert calls[0].needs("worker/1")
        assert calls[0].timeout == (9.0 if function == "_extend_graph" else 3.0)


@pytest.mark.parametrize(
    ("filters", "left_out"),
    [
        ([], False),
        (["/job:ps", "/job:worker/task:1"], False),
        (["/job:worker"], False),
        (["/job:ps", "/job:worker/replica:0/task:0"], True),
    ],
)
def test_device_filters_leave_tasks_out(filters: list[str], left_out: bool) -> None:
    session = SimpleNamespace(_config=SimpleNamespace(device_filters=filters), sess_str=b"grpc://localhost:2223")
    frame = SimpleNamespace(f_locals={"self": session})
    call = active_calls.Call((frame,))
    assert (call.leaves_out("worker/1"), call.target) == (left_out, "grpc://localhost:2223")
    without_config = SimpleNamespace(f_locals={"self": SimpleNamespace(_config=None)})
    call = active_calls.Call((without_config,))
    assert (call.leaves_out("worker/1"), call.target) == (False, "")
