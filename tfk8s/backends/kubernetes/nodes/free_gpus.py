"""The free GPUs of each node: what the node has, less what the pods on it request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfk8s import concurrency
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods.total_requests import allocatable, free
from tfk8s.core.resources import Resources
from tfk8s.render.placement import GKE_ACCELERATOR
from tfk8s.render.pods import Object

MAX_REQUESTS = 8  # at the same time
_MAX_NAMED = 8


def describe(client: Client, namespace: str) -> str:
    """Return the free GPUs by node, as a text.

    Args:
        namespace: counted alone where the user may not list the pods of all namespaces.

    Raises:
        ApiError: the user may not list nodes.
    """
    nodes: list[Object] = client.get(paths.NODES)["items"]
    counted = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
    having = [node for node in nodes if _gpus(node).amounts]
    if not having:
        return f"none on {counted}: tasks with `gpus` wait until there are some"
    try:
        pods = _pods_of(client, paths.collection("Pod", None), having)
        unseen = ""
    except ApiError as error:
        if error.code != 403:
            raise
        pods = _pods_of(client, paths.collection("Pod", namespace), having)
        unseen = f'; pods outside of namespace "{namespace}" may use some, and you may not list them'
    entries = [entry for node, on_node in zip(having, pods, strict=True) for entry in _count(node, on_node)]
    entries.sort(key=lambda entry: (-entry[0], entry[1]))
    more = f", and {len(entries) - _MAX_NAMED} more" if len(entries) > _MAX_NAMED else ""
    return f"free: {', '.join(text for _, text in entries[:_MAX_NAMED])}{more}{unseen}"


def _count(node: Object, pods: Sequence[Object]) -> Iterator[tuple[int, str]]:
    """Yield the free GPUs of each kind on a node with these pods, as a number and as a text."""
    name = node["metadata"]["name"]
    model = node["metadata"].get("labels", {}).get(GKE_ACCELERATOR, "")
    cordoned = "cordoned" if node.get("spec", {}).get("unschedulable") else ""
    notes = ", ".join(filter(None, (model, cordoned)))
    left = free([node], pods)[name]
    for resource, total in _gpus(node).amounts.items():
        number = max(0, int(left[resource]))
        yield number, f"{name} {number} of {int(total)} {resource}" + (f" ({notes})" if notes else "")


def _gpus(node: Object) -> Resources:
    present = allocatable(node)
    return present.only(name for name in present.amounts if name.endswith("/gpu"))


def _pods_of(client: Client, path: str, nodes: Sequence[Object]) -> list[list[Object]]:
    """Return the pods of each node. A list for each node with GPUs is less than the list of all pods."""

    def read(node: Object) -> list[Object]:
        query = {"fieldSelector": f"spec.nodeName={node['metadata']['name']},{paths.UNFINISHED}"}
        items: list[Object] = client.get(path, query)["items"]
        return items

    return concurrency.map_parallel(read, nodes, MAX_REQUESTS)
