"""The ClusterSpec that sessions bring to elastic servers, and the task of operations that name none."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from tfk8s.sessions.cluster import elastic, elastic_sessions, placement
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.task import probe, wire
from tfk8s.task.config import TaskConfig
from tfk8s.task.probe import Device
from tfk8s.task.wire import field

TASKS = {"worker/0": "w:1", "worker/1": "w:2", "ps/0": "p:1"}
OWN = Device("/job:tfk8s/replica:0/task:999999/device:CPU:0", "CPU", 1, 2, "")


def view(*devices: Device, without: tuple[str, ...] = (), forwarded: bool = False) -> ClusterView:
    """Return the cluster of `TASKS` whose master reports these devices."""
    answer = [b"".join((field(1, device.name), field(2, device.kind))) for device in devices]
    message = b"".join(field(1, device) for device in answer)
    stream = lambda _: contextlib.nullcontext(message)  # noqa: E731
    return ClusterView(TASKS, without, dial=stream, forwarded=forwarded)


@pytest.fixture(autouse=True)
def _calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.wire, "call", lambda stream, method, timeout: stream)


def test_cluster_and_sharing_are_in_the_config() -> None:
    config = dict(wire.fields(elastic.session_config({"worker/1": "w:2", "ps/0": "p:1"})))
    tasks = {"worker": field(2, field(1, 1) + field(2, "w:2")), "ps": field(2, field(1, 0) + field(2, "p:1"))}
    assert config == {14: b"".join(field(1, field(1, job) + tasks[job]) for job in tasks), 16: field(8, 1)}
    isolated = dict(wire.fields(elastic.session_config({"ps/0": "p:1"}, isolate=True)))
    assert isolated[16] == field(8, 0)


def test_elastic_server_starts_alone() -> None:
    config = TaskConfig({"ps": {0: "p:1"}, "worker": {0: "w:1"}}, "ps", 0, elastic=True)
    assert config.server == ({"tfk8s": {999_999: "p:1"}}, "tfk8s", 999_999)
    assert TaskConfig(config.cluster, "ps", 0).server == (config.cluster, "ps", 0)
    evaluator = TaskConfig({"evaluator": {0: "e:1", 1: "e:2"}}, "evaluator", 1, elastic=True)
    assert evaluator.server == ({"evaluator": {1: "e:2"}}, "evaluator", 1)


def test_devices_have_the_names_of_sessions() -> None:
    gpu = Device("/job:ps/replica:0/task:0/device:GPU:0", "GPU", 1, 2, "")
    assert (elastic.is_elastic([OWN]), elastic.is_elastic([gpu])) == (True, False)
    names = [device.name for device in elastic.rename([OWN, gpu], "worker/1")]
    assert names == ["/job:worker/replica:0/task:1/device:CPU:0", gpu.name]


def test_session_on_a_task_brings_the_cluster() -> None:
    cluster = view(OWN)
    opened = elastic_sessions.open_in(cluster, b"grpc://w:2")
    assert (opened.target, opened.cluster, opened.place_on) == ("grpc://w:2", cluster, "worker/1")
    assert elastic_sessions.open_in(view(OWN), "grpc://p:1").place_on == ""  # TensorFlow prefers it anyway
    assert elastic_sessions.open_in(view(OWN, without=("ps/0",)), "grpc://w:1").place_on == ""


@pytest.mark.parametrize("target", ["", "grpc://other:1"])
def test_session_elsewhere_brings_nothing(target: str) -> None:
    assert elastic_sessions.open_in(view(OWN), target) == elastic_sessions.Opening(target)


def test_session_with_a_cluster_of_its_own_is_left_alone() -> None:
    own = SimpleNamespace(cluster_def=SimpleNamespace(job=["a"]))
    opened = elastic_sessions.open_in(view(OWN, without=("ps/0",)), "grpc://w:1", own)
    assert opened == elastic_sessions.Opening("grpc://w:1")
    assert elastic_sessions.patch_config(own, ["/job:worker/task:0"], opened) is own


def test_session_on_a_static_cluster_brings_nothing() -> None:
    assert elastic_sessions.open_in(
        view(OWN._replace(name="/job:worker/replica:0/task:0/device:CPU:0")), "grpc://w:1"
    ) == (elastic_sessions.Opening("grpc://w:1"))


def test_forward_brings_the_cluster_instead() -> None:
    assert elastic_sessions.open_in(view(OWN, forwarded=True), "grpc://w:1") == elastic_sessions.Opening(
        "grpc://w:1", place_on="worker/0"
    )
    assert elastic_sessions.open_in(view(OWN), "grpc://127.0.0.1:5", None, "worker/0").cluster is None


# ---- operations without a task -------------------------------------------------------------------------------------


class Kind:
    """Stands for a `tf.DType`."""

    def __init__(self, name: str, *, is_reference: bool = False) -> None:
        self.name, self._is_ref_dtype = name, is_reference


FLOAT, REFERENCE, RESOURCE = Kind("float32"), Kind("float32_ref", is_reference=True), Kind("resource")


class Tensor:
    """Stands for a `tf.Tensor`."""

    def __init__(self, op: Operation, dtype: Kind) -> None:
        self.op, self.dtype, self.users = op, dtype, []

    def consumers(self) -> list[Operation]:
        return self.users


class Operation:
    """Stands for a `tf.Operation` with one output, which shows its own device; sessions get `placed`."""

    def __init__(
        self, name: str, *inputs: Operation, device: str = "", kind: str = "Add", dtype: Kind = FLOAT, beside: str = ""
    ) -> None:
        self.name, self.type, self.device, self._beside = name, kind, device, beside or name
        self.placed = device
        self.inputs = [one.outputs[0] for one in inputs]
        self._input_types = [FLOAT if kind == "SaveV2" else tensor.dtype for tensor in self.inputs]
        self.outputs = [Tensor(self, dtype)]
        for tensor in self.inputs:
            tensor.users.append(self)

    def colocation_groups(self) -> list[bytes]:
        return [b"loc:@" + self._beside.encode()]

    def _set_device_from_string(self, device: str) -> None:
        assert device != self.placed  # TensorFlow warns of changes of operations that a session has
        self.placed = device


class Graph:
    """Stands for a `tf.Graph`."""

    def __init__(self, *operations: Operation) -> None:
        self.operations = list(operations)

    def get_operations(self) -> list[Operation]:
        return list(self.operations)

    def _as_graph_def(self) -> tuple[Graph, int]:
        return self, 1

    @property
    def node(self) -> list[Operation]:
        return self.operations


HERE, PS = "/job:worker/task:0", "/job:ps/task:0"


def devices(*operations: Operation) -> dict[str, str]:
    """Return the devices of operations after they were placed."""
    placement.Placement(Graph(*operations)).place("worker/0", 0)
    return {operation.name: operation.placed for operation in operations}


def test_free_operations_get_the_master() -> None:
    a = Operation("a", Operation("constant", kind="Const"))
    cpu = Operation("cpu", a, device="/device:CPU:0")
    assert devices(a, cpu) == {"a": HERE, "cpu": f"{HERE}/device:CPU:0"}


@pytest.mark.parametrize("dtype", [REFERENCE, RESOURCE])
def test_operations_on_a_variable_stay_with_it(dtype: Kind) -> None:
    variable = Operation("variable", device=PS, dtype=dtype)
    assign = Operation("assign", variable, dtype=dtype)
    again = Operation("again", assign)
    beside = Operation("beside", Operation("x", device=PS), beside="variable")
    call = Operation("call", variable, kind="StatefulPartitionedCall")
    found = devices(variable, assign, again, beside, call)
    assert found == {"variable": PS, "assign": "", "again": "", "beside": "", "call": HERE}


def test_variables_are_saved_on_the_master() -> None:
    variable = Operation("variable", device=PS, dtype=REFERENCE)
    other = Operation("other", device="/job:ps/task:1", dtype=REFERENCE)
    assert devices(variable, other, Operation("save", variable, other, kind="SaveV2"))["save"] == HERE


def test_job_without_a_task_is_the_master() -> None:
    a = Operation("a", device="/job:worker/device:CPU:0")
    b, c = Operation("b", a, device="/job:worker2"), Operation("c", a, device="/job:ps")
    graph = Graph(a, b, c)
    placed = placement.Placement(graph)
    placed.place("worker/1", 0)
    names = ["/job:worker/task:1/device:CPU:0", "/job:worker2", "/job:ps"]
    assert [operation.placed for operation in (a, b, c)] == names
    placed.place("ps/0", 0)
    assert (a.placed, c.placed) == ("/job:worker/device:CPU:0", "/job:ps/task:0")
    assert [node.device for node in graph._as_graph_def()[0].node] == [
        "/job:worker/device:CPU:0",
        "/job:worker2",
        "/job:ps",
    ]


def test_constants_and_shapes_follow() -> None:
    shared, mixed, single = (Operation(name, kind="Const") for name in ("shared", "mixed", "single"))
    variable = Operation("variable", shared, mixed, device=PS)
    other = Operation("other", shared, device=PS)
    free = Operation("free", mixed, single)
    shape = Operation("shape", variable, kind="Shape")
    found = devices(shared, mixed, single, variable, other, free, shape)
    assert {name for name, device in found.items() if device == HERE} == {"mixed", "free"}


def test_functions_that_become_a_part_of_the_graph_are_on_the_master() -> None:
    variable, count = Operation("variable", device=PS, dtype=RESOURCE), Operation("count", kind="Const")
    loop = Operation("loop", variable, count, kind="StatelessWhile")
    both = Operation("both", variable, loop, Operation("free", dtype=RESOURCE), kind="If")
    assert devices(variable, count, loop, both) == {"variable": PS, "count": HERE, "loop": HERE, "both": HERE}


def test_only_sessions_see_the_master() -> None:
    a = Operation("a", Operation("c", kind="Const"))
    graph = Graph(a)
    placed = placement.Placement(graph)
    placed.place("worker/0", 0)
    assert (a.placed, placed.own_devices) == (HERE, {"a": ""})
    exported = graph._as_graph_def()[0]
    assert [node.device for node in exported.node] == [""]


def test_sessions_of_a_graph_have_different_masters() -> None:
    a = Operation("a", Operation("c", kind="Const"), device="/device:GPU:0")
    placed = placement.Placement(Graph(a))
    for task in ("worker/0", "worker/0", "worker/1"):
        placed.place(task, 0)
    assert a.placed == "/job:worker/task:1/device:GPU:0"
    placed.place("", 0)  # a session of this process
    assert a.placed == "/device:GPU:0"
