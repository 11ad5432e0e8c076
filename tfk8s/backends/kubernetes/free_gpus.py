"""The free GPUs of each node: what the node has, less what the pods on it request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfk8s import concurrency
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.shortages import requests
from tfk8s.render.placement import GKE_ACCELERATOR
from tfk8s.render.pods import Object

_NODES = "/api/v1/nodes"
_MAX_REQUESTS = 8  # at the same time
_MAX_NAMED = 8
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """The GPUs of one resource on a node.

    Attributes:
        node: the node's name.
        resource: such as "nvidia.com/gpu".
        model: as GKE labels the node, or "".
        total, free: their numbers.
        is_cordoned: whether the node takes no new pods.
    """

    node: str
    resource: str
    model: str
    total: int
    free: int
    is_cordoned: bool = False

    def __str__(self) -> str:
        notes = ", ".join(filter(None, (self.model, "cordoned" if self.is_cordoned else "")))
        return f"{self.node} {self.free} of {self.total} {self.resource}" + (f" ({notes})" if notes else "")


def describe(client: Client, namespace: str) -> str:
    """Return the free GPUs by node, as a text.

    Args:
        client: the API server.
        namespace: counted alone where the user may not list the pods of all namespaces.

    Raises:
        ApiError: the user may not list nodes.
    """
    nodes: list[Object] = client.get(_NODES)["items"]
    counted = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
    having = [node for node in nodes if _amounts(node)]
    if not having:
        return f"none on {counted}: tasks with `gpus` wait until there are some"
    try:
        pods = _pods_of(client, paths.collection("Pod", None), having)
        unseen = ""
    except ApiError as error:
        if error.code != _FORBIDDEN:
            raise
        pods = _pods_of(client, paths.collection("Pod", namespace), having)
        unseen = f'; pods outside of namespace "{namespace}" may use some, and you may not list them'
    free = [entry for node, on_node in zip(having, pods, strict=True) for entry in count(node, on_node)]
    more = f", and {len(free) - _MAX_NAMED} more" if len(free) > _MAX_NAMED else ""
    largest = sorted(free, key=lambda entry: (-entry.free, entry.node))
    return f"free: {', '.join(map(str, largest[:_MAX_NAMED]))}{more}{unseen}"


def count(node: Object, pods: Sequence[Object]) -> list[NodeGpus]:
    """Return the GPUs of a node with these pods."""
    return [
        NodeGpus(
            node=node["metadata"]["name"],
            resource=resource,
            model=node["metadata"].get("labels", {}).get(GKE_ACCELERATOR, ""),
            total=total,
            free=max(0, total - sum(_requested(pod, resource) for pod in pods)),
            is_cordoned=bool(node.get("spec", {}).get("unschedulable")),
        )
        for resource, total in _amounts(node).items()
    ]


def _amounts(node: Object) -> dict[str, int]:
    amounts = node["status"].get("allocatable", {})
    gpus = {name: int(amount) for name, amount in amounts.items() if name.endswith("/gpu") and amount.isdecimal()}
    return {name: amount for name, amount in gpus.items() if amount}


def _requested(pod: Object, resource: str) -> int:
    """Return how many GPUs a pod holds."""
    has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return 0 if has_ended else int(requests(pod["spec"])[resource])


def _pods_of(client: Client, path: str, nodes: Sequence[Object]) -> list[list[Object]]:
    """Return the pods of each node. A list for each node with GPUs is less than the list of all pods."""

    def read(node: Object) -> list[Object]:
        items: list[Object] = client.get(path, {"fieldSelector": f"spec.nodeName={node['metadata']['name']}"})["items"]
        return items

    return concurrency.map_parallel(read, nodes, _MAX_REQUESTS)
