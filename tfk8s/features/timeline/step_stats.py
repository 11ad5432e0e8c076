"""TensorFlow's StepStats as a `TracedStep`.

The forms of labels are those of tensorflow/core/common_runtime/step_stats_collector.cc, and those of transfers
(`RecvTensor`) of tensorflow/core/distributed_runtime/worker_cache_logger.cc. Standard library only: this file also runs
in pods.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from tfk8s.features.timeline.steps import TracedDevice, TracedOperation, TracedStep, Transfer

MAX_OPERATIONS = 50_000
_LABEL = re.compile(r" = ([^()]+)\((.*)\)")
_TRANSFER = re.compile(r"(?:\[[^\]]*\] )*(?:edge_\d+_)?(.*) from (/job:\S+) to (/job:\S+)")
_GRAPH_ENDS = ("_SOURCE", "_SINK")
_ALL_STREAMS = "/stream:all"  # a GPU's driver also reports each stream


def read_step(stats: Any, step: TracedStep, began: int, limit: int = MAX_OPERATIONS) -> TracedStep:
    """Return a step with the operations and transfers of TensorFlow's statistics.

    Args:
        stats: a StepStats.
        step: the step, without operations and transfers.
        began: the time of the step's call, in microseconds since the epoch.
        limit: the maximum number of operations. The latest are left out.
    """
    operations: list[TracedOperation] = []
    transfers: list[Transfer] = []
    for device_stats in stats.dev_stats:
        device = TracedDevice.parse(device_stats.device)
        if not device.task or ("/stream:" in device.name and not device.name.endswith(_ALL_STREAMS)):
            continue
        for node in device_stats.node_stats:
            if transfer := _transfer(node, began):
                transfers.append(transfer)
            elif node.node_name not in _GRAPH_ENDS:
                operations.append(_operation(device, node, began))
    is_cut = len(operations) > limit
    if is_cut:
        operations = sorted(operations, key=lambda operation: operation.start)[:limit]
        transfers = [transfer for transfer in transfers if transfer.start <= operations[-1].start]
    return dataclasses.replace(step, operations=tuple(operations), transfers=tuple(transfers), is_cut=is_cut)


def _operation(device: TracedDevice, node: Any, began: int) -> TracedOperation:
    name, begin = node.node_name, node.all_start_micros - began
    match = _LABEL.match(node.timeline_label, node.timeline_label.find(f"{name} = ") + len(name))
    kind, inputs = (match[1], match[2]) if match else ("", "")
    start = begin + node.op_start_rel_micros
    ready = node.scheduled_micros - began if node.scheduled_micros else begin
    return TracedOperation(
        device, name, kind, tuple(filter(None, inputs.split(", "))), min(ready, start), start,
        max(begin + node.op_end_rel_micros, start),
    )  # fmt: skip


def _transfer(node: Any, began: int) -> Transfer | None:
    match = _TRANSFER.fullmatch(node.timeline_label)
    if match is None:
        return None
    start = node.all_start_micros - began
    size = max((output.tensor_description.allocation_description.requested_bytes for output in node.output), default=0)
    return Transfer(
        match[1],
        TracedDevice.parse(match[2]),
        TracedDevice.parse(match[3]),
        start,
        start + node.op_end_rel_micros,
        size,
    )
