"""The tasks that a call needs, in a graph of stand-ins."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tfk8s.sessions import active_calls, patch
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.device_names import tasks_of


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


def needs(operations: list[Operation], fed: set[Operation], task: str = "worker/1") -> bool:
    return bool(tasks_of(active_calls.devices_of(operations, fed), [task]))


def test_operation_needs_the_task_of_its_device() -> None:
    for device, needed in OPERATIONS:
        behind = operation(device)
        assert needs([operation("", operation("", behind))], set()) == needed, device
        assert needs([operation("", after=(behind,))], set()) == needed, device


def test_fed_operation_needs_nothing() -> None:
    fed = operation("/job:ps/task:0", operation("/job:worker/task:1"))
    assert not needs([operation("", fed)], {fed})


def test_loops_end_and_functions_may_need_any_task() -> None:
    first, second = operation(), operation()
    first.inputs, second.inputs = [SimpleNamespace(op=second)], [SimpleNamespace(op=first)]
    assert not needs([first], set())
    assert needs([operation("", operation(kind="StatefulPartitionedCall"))], set())


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
        assert calls[0].needed(["worker/1"]) == ["worker/1"]
        assert calls[0].timeout == (9.0 if function == "_extend_graph" else 3.0)


def test_call_is_described_with_the_tasks_that_it_needs() -> None:
    view = ClusterView({"master/0": "m:1", "worker/0": "w0:1", "worker/1": "w1:1"}, without=["worker/1"])
    leave, thread = in_a_thread("_extend_graph")
    try:
        call = active_calls.describe_calls(view, [thread.ident or 0])[thread.ident or 0]
    finally:
        leave.set()
        thread.join(60)
    assert call == {"key": None, "seconds": None, "needs": ["master/0", "worker/0"]}


def test_call_of_a_patched_session_has_its_time() -> None:
    entered, leave = threading.Event(), threading.Event()

    def run() -> None:
        entered.set()
        leave.wait(60)

    names = {"run": run}
    path = "/somewhere/tensorflow/python/client/session.py"
    exec(compile("def session_run(self=None):\n    run()\n", path, "exec"), names)  # noqa: S102
    session = SimpleNamespace(graph=SimpleNamespace(version=0))
    before = time.monotonic()
    thread = threading.Thread(target=patch.run_checked, args=[session, None, names["session_run"]])
    thread.start()
    assert entered.wait(60)
    try:
        call = active_calls.describe_calls(ClusterView({}), [thread.ident or 0])[thread.ident or 0]
    finally:
        leave.set()
        thread.join(60)
    assert 0 <= call["seconds"] < 60
    assert before <= call["key"] <= time.monotonic(), "the next call has another key, even in a frame at the same place"


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


# CPython 3.11 waits for ever if it collects a `threading.local` within `sys._current_frames`.
GARBAGE = """
import gc, threading
from tfk8s.sessions.active_calls import active_calls
leave = threading.Event()
threads = [threading.Thread(target=leave.wait) for _ in range(8)]
for thread in threads:
    thread.start()
gc.set_threshold(10)
for count in range(100):
    for _ in range(count % 12):
        own = [threading.local()]
        own.append(own)
    active_calls()
leave.set()
print(gc.isenabled())
"""


@pytest.mark.programs
def test_garbage_of_threads_does_not_stop_the_search_for_calls() -> None:
    done = subprocess.run([sys.executable, "-c", GARBAGE], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "True\n"
