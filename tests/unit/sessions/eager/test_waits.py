"""The tasks that a call of eager execution waits for; tests/faults has real calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tfk8s.sessions import active_calls
from tfk8s.sessions.eager import waits

EXECUTE = "eager/execute.py"
FUNCTION = "eager/polymorphic_function/atomic_function.py"
PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0"
LOCAL = "/job:chief/replica:0/task:0/device:CPU:0"


class EagerTensor(SimpleNamespace):
    """A tensor with the name of TensorFlow's class."""


def tensor(device: str, dtype: str = "<dtype: 'float32'>") -> EagerTensor:
    return EagerTensor(device=device, dtype=dtype)


def function(*devices: str, children: tuple[object, ...] = ()) -> SimpleNamespace:
    nodes = [SimpleNamespace(device=device) for device in devices]
    return SimpleNamespace(cached_definition=SimpleNamespace(node_def=nodes), children=children)


def frame(file: str, name: str = "quick_execute", **local: object) -> SimpleNamespace:
    code = SimpleNamespace(co_filename=f"/site-packages/tensorflow/python/{file}", co_name=name)
    return SimpleNamespace(f_code=code, f_locals=local)


def call(*stack: SimpleNamespace) -> waits.EagerCall:
    found = waits.eager_call(stack, is_background=False)
    assert found is not None
    return found


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Connect this process to a cluster with a server of its own as chief."""

    def connect(**jobs: int) -> None:
        cluster = [SimpleNamespace(name=name, tasks=dict.fromkeys(range(count), "h:1")) for name, count in jobs.items()]
        server = SimpleNamespace(cluster=SimpleNamespace(job=cluster), job_name="chief", task_index=0)
        context = SimpleNamespace(get_server_def=lambda: server)
        module = SimpleNamespace(context_safe=lambda: context)
        monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", module)

    return connect


@pytest.mark.parametrize(
    ("inputs", "device", "behind", "needed"),
    [
        ([tensor(PS)], None, None, True),
        ([tensor(LOCAL), [tensor(PS)]], None, None, True),
        ([tensor(LOCAL)], None, None, False),
        ([], PS, None, True),
        ([], "", function(LOCAL, PS), True),
        ([], "", function(LOCAL, children=(function("", PS),)), True),
        ([tensor(WORKER)], WORKER, function("", WORKER), False),
    ],
)
def test_tasks_of_a_function(inputs: list[object], device: str | None, behind: object, needed: bool) -> None:
    outer = [frame(FUNCTION, "call_flat", self=behind)] if behind else []
    assert call(frame(EXECUTE, inputs=inputs, device_name=device), *outer).needed(["ps/0"]) == ["ps/0"] * needed


@pytest.mark.parametrize(
    ("name", "needed"), [(b"__inference_step_12", True), ("__forward_step_3", True), ("MatMul", False)]
)
def test_a_function_of_an_older_tensorflow_may_need_any_task(name: object, needed: bool) -> None:
    assert call(frame(EXECUTE, inputs=[tensor(LOCAL)], op_name=name)).needed(["ps/0"]) == ["ps/0"] * needed
    assert call(frame(EXECUTE, inputs=[]), frame(FUNCTION, self=SimpleNamespace())).needed(["ps/0"])


@pytest.mark.parametrize(
    ("value", "needed"), [(tensor(PS), True), (tensor(LOCAL), True), (tensor(LOCAL, "<dtype: 'resource'>"), False)]
)
def test_tasks_of_an_operation(value: object, needed: bool) -> None:
    assert call(frame("ops/gen_math_ops.py", "mat_mul", a=value)).needed(["ps/0"]) == ["ps/0"] * needed


def test_only_the_innermost_frame_waits() -> None:
    assert waits.eager_call((frame("distribute/values.py"), frame(EXECUTE)), is_background=False) is None
    assert waits.eager_call((), is_background=False) is None


@pytest.mark.parametrize(
    ("file", "name", "opens"),
    [
        ("eager/context.py", "update_server_def", True),
        ("eager/context.py", "sync_executors", False),
        (EXECUTE, "quick_execute", False),
    ],
)
def test_connecting_takes_longer(file: str, name: str, opens: bool) -> None:
    found = call(frame(file, name))
    assert (found.opens, found.timeout) == (opens, 9.0 if opens else 3.0)


def test_a_process_waits_for_the_tasks_that_it_has_connected_to(connect: Callable[..., None]) -> None:
    found = call(frame(EXECUTE))
    assert found.leaves_out("ps/0")
    connect(chief=1, ps=1, worker=2)
    tasks = ("ps/0", "worker/1", "worker/2", "chief/0")
    assert [found.leaves_out(task) for task in tasks] == [False, False, True, True]


def test_a_coordinator_survives_the_loss_of_a_worker(connect: Callable[..., None]) -> None:
    connect(ps=1, worker=2)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, args=[60], name="WorkerClosureProcessingLoop-0")
    thread.start()
    try:
        assert [call(frame(EXECUTE)).leaves_out(task) for task in ("ps/0", "worker/1")] == [False, True]
    finally:
        ended.set()
        thread.join()


def test_other_threads_need_no_help_with_ctrl_c() -> None:
    entered, leave = threading.Event(), threading.Event()
    code = compile("entered.set()\nwhile not leave.is_set(): pass", "/x/tensorflow/python/eager/execute.py", "exec")
    thread = threading.Thread(target=exec, args=[code, {"entered": entered, "leave": leave}])
    thread.start()
    try:
        assert entered.wait(60)
        found: set[bool] = set()
        while not found:  # the innermost frame may be of `is_set`
            found = {one.is_background for one in active_calls.active_calls().values()}
    finally:
        leave.set()
        thread.join()
    assert found == {True}
