"""Refuses tasks that no node can ever hold: compares the requests of a pod with all that each node has.

Resources in use and cordoned nodes are ignored, because both may change while a pod waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from tfk8s.backends.kubernetes import status
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.core.quantity import Quantity
from tfk8s.errors import InvalidInput
from tfk8s.render.pods import GKE_ACCELERATOR, GKE_SPOT, Object

# Nodes with one of these labels belong to pools, nodes with a provider's id to a cloud. Both may grow when a pod waits.
_POOLS = (
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
)  # fmt: skip
_FIXED_PROVIDERS = ("", "kind")  # their nodes do not become more
_TRANSIENT = "node.kubernetes.io/"  # taints that Kubernetes itself sets and removes
_REPELLING = ("NoSchedule", "NoExecute")
_UNCOUNTED = "ephemeral-storage"


def may_grow(nodes: Sequence[Object]) -> bool:
    """Return whether more nodes may join by themselves. True without nodes."""
    return not nodes or any(map(_is_scalable, nodes))


def _is_scalable(node: Object) -> bool:
    provider = node["spec"].get("providerID", "").partition(":")[0]
    return provider not in _FIXED_PROVIDERS or any(label in _labels(node) for label in _POOLS)


def why_impossible(job: str, pod: Object, nodes: Sequence[Object]) -> str:
    """Return why no node can ever hold a pod, with the field of the job file to change; "" if a node can.

    Args:
        job: the job's name in the job file.
        pod: the spec of the job's pods.
        nodes: all nodes, at least one.
    """
    selector = pod.get("nodeSelector", {})
    for label, value in selector.items():
        if all(_labels(node).get(label) != value for node in nodes):
            return _no_label(job, label, value, nodes)
    selected = [node for node in nodes if selector.items() <= _labels(node).items()]
    if not selected:
        labels = ", ".join(f"{label}={value}" for label, value in selector.items())
        return f"no node has all of {labels}: change jobs.{job}.node_selector"
    tolerated = [node for node in selected if not _repelling_taint(pod, node)]
    if not tolerated:
        taint = _repelling_taint(pod, selected[0])
        return f"every node has a taint that it does not tolerate ({taint}): add to jobs.{job}.tolerations"
    return _why_too_small(job, pod, tolerated)


def _no_label(job: str, label: str, value: str, nodes: Sequence[Object]) -> str:
    field = {GKE_ACCELERATOR: "accelerator", GKE_SPOT: "spot"}.get(label, "node_selector")
    values = sorted({_labels(node)[label] for node in nodes if label in _labels(node)})
    others = f", only {label}={', '.join(values)}" if values else ""
    return f"no node has the label {label}={value}{others}: change jobs.{job}.{field}"


def _repelling_taint(pod: Object, node: Object) -> str:
    """Return a taint of a node that the pod does not tolerate, as kubectl writes it; "" if it tolerates all."""
    for taint in node["spec"].get("taints", ()):
        harmless = taint["key"].startswith(_TRANSIENT) or taint["effect"] not in _REPELLING
        if not harmless and not any(_tolerates(item, taint) for item in pod.get("tolerations", ())):
            return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
    return ""


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    """Return whether a toleration matches a taint (k8s.io/api/core/v1, Toleration.ToleratesTaint)."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _why_too_small(job: str, pod: Object, nodes: Sequence[Object]) -> str:
    requests = pod["containers"][0]["resources"]["requests"]
    amounts = {name: str(amount) for name, amount in requests.items() if name != _UNCOUNTED}
    fields = {name: f"jobs.{job}.{name if name in ('cpu', 'memory') else 'gpus'}" for name in amounts}
    for name, amount in amounts.items():
        largest = max(nodes, key=lambda node: allocatable(node, name))
        if _number(amount) > allocatable(largest, name):
            maximum = _copyable(largest["status"]["allocatable"].get(name, "0"))
            return f"it asks for {amount} {name}, and no node has more than {maximum}: lower {fields[name]}"
    if any(all(_number(amount) <= allocatable(node, name) for name, amount in amounts.items()) for node in nodes):
        return ""
    together = ", ".join(f"{amount} {name}" for name, amount in amounts.items())
    return f"no node has {together} together: lower {' or '.join(fields.values())}"


def _copyable(amount: str) -> str:
    """Return an amount in a job file's units: kubelet reports memory in KiB."""
    return f"{int(_number(amount)) >> 20}Mi" if amount.endswith("Ki") else amount


def allocatable(node: Object, resource: str) -> Decimal:
    """Return how much of a resource a node has for pods, used or free."""
    return _number(node["status"].get("allocatable", {}).get(resource, "0"))


def _number(amount: str) -> Decimal:
    return Quantity.parse(amount).value


def _labels(node: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = node["metadata"].get("labels", {})
    return labels


_PATH = "/api/v1/nodes"
_MAX_NODES = 500  # more nodes take several requests, and are not checked


def require_room(client: Client, objects: Sequence[Object]) -> None:
    """Raise an InvalidInput if no node can ever hold a task of a job.

    Where nodes may join, or can't be listed, only the scheduler decides, and `up` reports its message.
    """
    nodes = list_nodes(client)
    if may_grow(nodes):
        return
    reasons = []
    for item in objects:
        if item["kind"] == "StatefulSet":
            job = status.container_environment(item)["TFK8S_JOB"]
            reason = why_impossible(job, item["spec"]["template"]["spec"], nodes)
            reasons += [f"no node can ever hold a task of {job}: {reason}"] if reason else []
    if reasons:
        raise InvalidInput("; ".join(reasons), help="or add such nodes first; nothing was created")


def require_gpus(client: Client, resource: str, count: int) -> None:
    """Raise an InvalidInput if no node has as many GPUs as a script asks for."""
    nodes = list_nodes(client)
    if may_grow(nodes):
        return
    maximum = max(allocatable(node, resource) for node in nodes)
    if maximum < count:
        raise InvalidInput(
            f"the script asks for {count} {resource}, and no node has more than {maximum}",
            help="lower --gpus, or add such nodes first; nothing was created",
        )


def list_nodes(client: Client) -> list[Object]:
    """Return all nodes; none if the user may not list them, or if they are too many."""
    try:
        answer = client.get(_PATH, {"limit": _MAX_NODES})
    except ApiError as error:
        if error.code != 403:
            raise
        return []
    items: list[Object] = answer["items"]
    return [] if answer["metadata"].get("continue") else items
