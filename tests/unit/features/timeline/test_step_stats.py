"""TensorFlow's statistics of a step, in the forms that TensorFlow 2.21 writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from traced import operation, step, transfer

from tfk8s.features.timeline.step_stats import read_step
from tfk8s.features.timeline.steps import TracedDevice, TracedOperation

BEGAN = 1_795_407_768_656_064
PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"


def node(name: str, label: str, at: int, times: tuple[int, int] = (0, 0), ready: int = 0, size: int = 0) -> Any:
    """Return a NodeExecStats."""
    tensor = SimpleNamespace(allocation_description=SimpleNamespace(requested_bytes=size))
    return SimpleNamespace(
        node_name=name, timeline_label=label, all_start_micros=BEGAN + at, op_start_rel_micros=times[0],
        op_end_rel_micros=times[1], scheduled_micros=BEGAN + ready if ready else 0,
        output=[SimpleNamespace(tensor_description=tensor)],
    )  # fmt: skip


def stats(**devices: list[Any]) -> Any:
    return SimpleNamespace(
        dev_stats=[SimpleNamespace(device=device, node_stats=nodes) for device, nodes in devices.items()]
    )


def test_operations_and_transfers() -> None:
    label = f"[16.0MB] [8.0Gb/s] edge_4_w1/read from {PS} to {WORKER}"
    found = read_step(
        stats(**{
            WORKER: [
                node("RecvTensor", label, 3678, (0, 16749), size=16 << 20),
                node("_SOURCE", "_SOURCE = NoOp()", 1549, (0, 0)),
                node("mm0", "mm0 = MatMul(_recv_x_0, w1/read_S1)", 20508, (4, 1764), ready=20477),
            ],
            PS: [node("mul", "[cpu 16.0MB 16.0MB] mul = BroadcastTo(loss, ^init)", 35511, (1, 8404))],
        }),
        step(), BEGAN,
    )  # fmt: skip
    assert found == step(
        operation("worker/0", "mm0", 20512, 22272, "_recv_x_0", "w1/read_S1", kind="MatMul", ready=20477),
        operation("ps/0", "mul", 35512, 43915, "loss", "^init", kind="BroadcastTo", ready=35511),
        transfer("w1/read", "ps/0", "worker/0", 3678, 20427, 16 << 20),
    )


def test_only_one_row_of_a_gpu_s_driver_is_read() -> None:
    gpu = "/job:worker/replica:0/task:0/device:GPU:0"
    kernel = node("mm0:MatMul", "sgemm_kernel", 10, (0, 5))
    found = read_step(
        stats(**{f"{gpu}/stream:all": [kernel], f"{gpu}/stream:13": [kernel], "/host:CPU": [kernel]}), step(), BEGAN
    )
    expected = TracedOperation(TracedDevice("worker/0", "GPU:0/stream:all"), "mm0:MatMul", "", (), 10, 10, 15)
    assert found.operations == (expected,)


def test_a_step_with_too_many_operations_is_cut_in_time() -> None:
    label = f"[4B] edge_4_x from {PS} to {WORKER}"
    many = [node(f"x{n}", f"x{n} = NoOp()", 100 - n, (0, 1)) for n in range(10)]
    sent = [node("RecvTensor", label, at, (0, 1)) for at in (90, 95)]
    found = read_step(stats(**{WORKER: [*many, *sent]}), step(), BEGAN, limit=3)
    assert ([one.name for one in found.operations], found.is_cut) == (["x9", "x8", "x7"], True)
    assert [one.start for one in found.transfers] == [90]
