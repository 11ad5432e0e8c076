"""Places operations that name no task on the session's master, as TensorFlow does on servers with a ClusterSpec.

TensorFlow prefers the master's devices because they are local (`SortPrioritizedDeviceVector` in
tensorflow/core/common_runtime/device_set.cc). In a session that brings its ClusterSpec, no device is local, and the
first one by name is taken: ps/0 before worker/0. So operations get the master's name just before a session gets them,
except those that TensorFlow puts beside others (tensorflow/core/common_runtime/placer.cc). Only sessions see that name:
operations and exported graphs have the devices that the script gave. Standard library and TensorFlow only: this file
also runs in pods.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tfk8s.sessions.cluster import elastic
from tfk8s.sessions.cluster.cluster_view import ClusterView

_METADATA = ("Shape", "Size", "Rank")  # beside their input (`IsMetadata`)
_BESIDE = b"loc:@"
_LOWERED = ("If", "While", "Case")  # their functions become a part of the graph before the placer sees it
_EXEMPT = (*_LOWERED, "PartitionedCall")  # `REGISTER_INPUT_COLOCATION_EXEMPTION`

_creation = threading.Lock()  # of placements


def needed(view: ClusterView, master: str) -> bool:
    """Return whether TensorFlow would prefer another task than the master."""
    tasks = (task for task in view.addresses if task not in view.without)
    return bool(master) and min(map(elastic.full_name, tasks), default="") != elastic.full_name(master)


def patch_sessions() -> None:
    """Patch the sessions of this process: those with an attribute `_tfk8s_master`, a task, place operations there."""
    from tensorflow.python.client.session import BaseSession

    extend = BaseSession._extend_graph
    if hasattr(extend, "__wrapped__"):  # patched already
        return

    @functools.wraps(extend)
    def patched_extend(self: Any) -> None:  # before each step
        is_placed = self._tfk8s_master or hasattr(self._graph, "_tfk8s_placement")
        if is_placed and self._graph.version != self._tfk8s_version:
            _place_and_extend(self, extend)
        else:
            extend(self)

    BaseSession._tfk8s_master, BaseSession._tfk8s_version, BaseSession._tfk8s_extended = "", -1, 0
    BaseSession._extend_graph = patched_extend


def _show_own_devices() -> None:
    """Patch the operations and tensors of this process: they show the devices that the script gave."""
    from tensorflow.python.framework import ops

    device, node_def = ops.Operation.device.fget, ops.Operation.node_def.fget
    if hasattr(device, "__wrapped__"):  # patched already
        return

    @functools.wraps(device)
    def own_device(self: Any) -> str:
        placement = getattr(self.graph, "_tfk8s_placement", None)
        own = None if placement is None else placement.own_devices.get(self.name)
        return str(device(self)) if own is None else own

    @functools.wraps(node_def)
    def own_node_def(self: Any) -> Any:
        definition = node_def(self)
        definition.device = own_device(self)
        return definition

    ops.Operation.device, ops.Operation.node_def = property(own_device), property(own_node_def)
    ops.SymbolicTensor.device = property(lambda self: own_device(self.op))


def _place_and_extend(session: Any, extend: Callable[[Any], object]) -> None:
    """Give a session the operations of its graph that it does not have yet."""
    graph = session._graph
    with _creation:
        placement = getattr(graph, "_tfk8s_placement", None)
        if placement is None:
            _show_own_devices()
            placement = graph._tfk8s_placement = Placement(graph)
    with placement.lock:
        version = graph.version
        session._tfk8s_extended = placement.place(session._tfk8s_master, session._tfk8s_extended)
        if has_others := len(placement.masters) > 1:  # they may not place operations before this session has them
            extend(session)
    if not has_others:  # it may wait long, if it opens the session
        extend(session)
    session._tfk8s_version = version


class Placement:
    """The operations of one graph, in the groups that TensorFlow keeps on one task.

    Args:
        graph: a `tf.Graph`.

    Attributes:
        masters: the masters of sessions so far.
        own_devices: the devices that the script gave to operations which `place` has given another one, by name.
        lock: to be held from `place` until the session has the operations, if there are several masters.
    """

    def __init__(self, graph: Any) -> None:
        self._graph, self._export = graph, graph._as_graph_def
        self._leaders: dict[str, str] = {}  # another operation of the group, by operation
        self._devices: dict[str, str] = {}  # the device with a task that a group has, by the group's leader
        self._grouped = 0
        self._placed: dict[str, str] = {}  # the device that sessions get, by operation
        self.masters: set[str] = set()
        self.own_devices: dict[str, str] = {}
        self.lock = threading.RLock()
        graph._as_graph_def = self._export_unplaced

    def place(self, task: str, start: int) -> int:
        """Give operations that name no task one; return the number of operations.

        Args:
            task: the task's short name; "" gives operations their own devices back.
            start: the number of operations that the session has already.
        """
        self.masters.add(task)
        operations = self._graph.get_operations()
        for operation in operations[self._grouped :]:
            self._group(operation)
        self._grouped = len(operations)
        master = elastic.device(task) if task else ""
        for operation in operations[start:]:
            own = operation.device
            placed = self._choose(operation, own, master) if master else own
            if placed != self._placed.get(operation.name, own):
                self._placed[operation.name], self.own_devices[operation.name] = placed, own
                operation._set_device_from_string(placed)
        return len(operations)

    def _choose(self, operation: Any, own: str, master: str) -> str:
        """Return the device that a session gets for an operation."""
        job = master.rpartition("/task:")[0]
        if "/job:" in own:  # "/job:worker" is the master too, if the master is a worker
            return own.replace(job, master, 1) if _lacks_task(own, job) else own
        is_free = operation.name in self.own_devices or not (self._device(operation) or self._follows(operation))
        return f"{master}{own}" if is_free else own

    def _group(self, operation: Any) -> None:
        """Join an operation with the groups of the operations that share its task."""
        beside = [group.removeprefix(_BESIDE).decode() for group in operation.colocation_groups()]
        if "/job:" in operation.device:
            self._devices.setdefault(operation.name, operation.device)
        for other in (*beside, *_handles(operation)):
            leader, follower = self._leader(other), self._leader(operation.name)
            if leader != follower:
                self._leaders[follower] = leader
                if device := self._devices.pop(follower, ""):
                    self._devices.setdefault(leader, device)

    def _device(self, operation: Any) -> str:
        return self._devices.get(self._leader(operation.name), "")

    def _leader(self, name: str) -> str:
        while (leader := self._leaders.get(name, name)) != name:
            name = leader
        return name

    def _follows(self, operation: Any) -> bool:
        """Return whether TensorFlow puts an operation beside its input, or beside its consumers."""
        if operation.type in _METADATA:
            return len(operation.inputs[0].op.inputs) > 0 or bool(self._device(operation.inputs[0].op))
        outputs = operation.outputs
        if len(operation.inputs) or len(outputs) != 1 or outputs[0].dtype._is_ref_dtype:
            return False
        consumers = outputs[0].consumers()
        if any(consumer.type.endswith(_LOWERED) for consumer in consumers):
            return False
        devices = {self._device(consumer) for consumer in consumers}
        return len(consumers) == 1 or (len(devices) == 1 and "" not in devices)

    def _export_unplaced(self, *arguments: Any, **keywords: Any) -> Any:
        """Return the graph as TensorFlow does, with the devices that the script has given."""
        exported, version = self._export(*arguments, **keywords)
        for node in exported.node:
            node.device = self.own_devices.get(node.name, node.device)
        return exported, version


def _lacks_task(device: str, job: str) -> bool:
    """Return whether a device names a job, but none of its tasks, as those of `replica_device_setter` do."""
    return re.search(rf"{job}(/|$)", device) is not None and "/task:" not in device


def _handles(operation: Any) -> Iterator[str]:
    """Yield the operations whose variables an operation uses, which must be on its task."""
    if operation.type.endswith(_EXEMPT) or "Dataset" in operation.type:
        return
    for tensor, kind in zip(operation.inputs, operation._input_types, strict=True):  # SaveV2 reads variables by value
        if kind._is_ref_dtype or kind.name == "resource":
            yield tensor.op.name
