"""The free GPUs of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.nodes import free_gpus
from tfk8s.render.placement import GKE_ACCELERATOR

Object = dict[str, Any]


def node(name: str, *, unschedulable: bool = False, model: str = "", **allocatable: str) -> Object:
    amounts = {key.replace("_", ".", 1).replace("_", "/"): value for key, value in allocatable.items()}
    labels = {GKE_ACCELERATOR: model} if model else {}
    spec = {"unschedulable": True} if unschedulable else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": amounts}}


def pod(node: str, *gpus: int, init: int = 0, phase: str = "Running") -> Object:
    containers, init_containers = (
        [{"resources": {"requests": {"nvidia.com/gpu": str(amount)}}} for amount in amounts]
        for amounts in (gpus, [init])
    )
    spec = {"nodeName": node, "containers": containers, "initContainers": init_containers}
    return {"spec": spec, "status": {"phase": phase}}


class Client:
    """An API server with nodes and pods, which are selected by their node and their phases."""

    def __init__(self, nodes: list[Object], pods: list[Object], refused: str) -> None:
        self._nodes, self._pods, self._refused = nodes, pods, refused

    def get(self, path: str, query: dict[str, str] | None = None) -> Object:
        if path == self._refused:
            raise ApiError(403, "no")
        if path == "/api/v1/nodes":
            return {"items": self._nodes}
        assert query is not None
        assert path in ("/api/v1/pods", "/api/v1/namespaces/ns/pods")
        node, *phases = query["fieldSelector"].removeprefix("spec.nodeName=").split(",")
        on_node = [pod for pod in self._pods if pod["spec"]["nodeName"] == node]
        return {"items": [pod for pod in on_node if f"status.phase!={pod['status']['phase']}" not in phases]}


NODES = [
    node("a", nvidia_com_gpu="8", model="nvidia-l4", cpu="4"),
    node("b", nvidia_com_gpu="4", amd_com_gpu="2", unschedulable=True),
    node("c", cpu="4", nvidia_com_gpu="0"),
]
PODS = [
    pod("a", 2, 1), pod("a", 1, init=2), pod("a", 4, phase="Succeeded"), pod("a", 4, phase="Failed"), pod("a"),
    pod("b", 9),
]  # fmt: skip
FREE = "free: a 3 of 8 nvidia.com/gpu (nvidia-l4), b 2 of 2 amd.com/gpu (cordoned), b 0 of 4 nvidia.com/gpu (cordoned)"


def describe(nodes: list[Object], pods: list[Object], refused: str = "") -> str:
    return free_gpus.describe(Client(nodes, pods, refused), "ns")  # type: ignore[arg-type]


def test_the_gpus_that_pods_hold_are_not_free() -> None:
    assert describe(NODES, PODS) == FREE


def test_pods_of_other_namespaces_that_may_not_be_listed() -> None:
    assert describe(NODES, PODS, "/api/v1/pods") == (
        f'{FREE}; pods outside of namespace "ns" may use some, and you may not list them'
    )


def test_nodes_that_may_not_be_listed() -> None:
    with pytest.raises(ApiError):
        describe(NODES, PODS, "/api/v1/nodes")


def test_nodes_without_gpus() -> None:
    assert describe(NODES[2:], []) == "none on 1 node: tasks with `gpus` wait until there are some"
    assert describe([], []).startswith("none on 0 nodes: ")


def test_at_most_eight_entries_are_named() -> None:
    nodes = [node(f"n{number}", nvidia_com_gpu=str(number + 1)) for number in range(10)]
    assert describe(nodes, []).startswith("free: n9 10 of 10 nvidia.com/gpu, n8 9 of 9 nvidia.com/gpu, ")
    assert describe(nodes, []).endswith(", n2 3 of 3 nvidia.com/gpu, and 2 more")
