"""Whether any node can ever hold a task: what its pod asks for, compared with what each node has in all.

What is in use on a node plays no part, nor does whether it is cordoned: that may change while one waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from tfk8s.backends.kubernetes import status
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.core.quantity import Quantity
from tfk8s.errors import InvalidInput
from tfk8s.render.pods import GKE_ACCELERATOR, GKE_SPOT, Object

# Nodes with one of these labels come from pools, and those with a provider's id from a cloud: more may come when a pod
# waits for them. Not so with kind's.
_POOLS = (
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
)  # fmt: skip
_FIXED_PROVIDERS = ("", "kind")
_TRANSIENT = "node.kubernetes.io/"  # taints that Kubernetes itself sets and removes
_KEEPING_AWAY = ("NoSchedule", "NoExecute")
_UNCOUNTED = "ephemeral-storage"


def may_grow(nodes: Sequence[Object]) -> bool:
    """Return whether other nodes than these may come by themselves; so where there are none yet."""
    return not nodes or any(map(_is_of_a_pool, nodes))


def _is_of_a_pool(node: Object) -> bool:
    provider = node["spec"].get("providerID", "").partition(":")[0]
    return provider not in _FIXED_PROVIDERS or any(label in _labels(node) for label in _POOLS)


def impossible(job: str, pod: Object, nodes: Sequence[Object]) -> str:
    """Return why no node can ever hold a pod, with the field of the job file to change; "" where one can.

    Args:
        job: its name in the job file.
        pod: the spec of the job's pods.
        nodes: all nodes, at least one.
    """
    selector = pod.get("nodeSelector", {})
    for label, value in selector.items():
        if all(_labels(node).get(label) != value for node in nodes):
            return _no_label(job, label, value, nodes)
    chosen = [node for node in nodes if selector.items() <= _labels(node).items()]
    if not chosen:
        words = ", ".join(f"{label}={value}" for label, value in selector.items())
        return f"no node has all of {words}: change jobs.{job}.node_selector"
    allowed = [node for node in chosen if not _keeping_away(pod, node)]
    if not allowed:
        taint = _keeping_away(pod, chosen[0])
        return f"every node keeps it away ({taint}): add to jobs.{job}.tolerations"
    return _too_small(job, pod, allowed)


def _no_label(job: str, label: str, value: str, nodes: Sequence[Object]) -> str:
    field = {GKE_ACCELERATOR: "accelerator", GKE_SPOT: "spot"}.get(label, "node_selector")
    others = sorted({_labels(node)[label] for node in nodes if label in _labels(node)})
    there = f", only {label}={', '.join(others)}" if others else ""
    return f"no node has the label {label}={value}{there}: change jobs.{job}.{field}"


def _keeping_away(pod: Object, node: Object) -> str:
    """Return a taint of a node that the pod does not tolerate, as kubectl writes it; "" where there is none."""
    for taint in node["spec"].get("taints", ()):
        passing = taint["key"].startswith(_TRANSIENT) or taint["effect"] not in _KEEPING_AWAY
        if not passing and not any(_tolerates(one, taint) for one in pod.get("tolerations", ())):
            return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
    return ""


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    """Return whether a toleration is for a taint (k8s.io/api/core/v1, Toleration.ToleratesTaint)."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _too_small(job: str, pod: Object, nodes: Sequence[Object]) -> str:
    requests = pod["containers"][0]["resources"]["requests"]
    asked = {name: str(amount) for name, amount in requests.items() if name != _UNCOUNTED}
    fields = {name: f"jobs.{job}.{name if name in ('cpu', 'memory') else 'gpus'}" for name in asked}
    for name, amount in asked.items():
        largest = max(nodes, key=lambda node: allocatable(node, name))
        if _number(amount) > allocatable(largest, name):
            most = _copyable(largest["status"]["allocatable"].get(name, "0"))
            return f"it asks for {amount} {name}, and no node has more than {most}: lower {fields[name]}"
    if any(all(_number(amount) <= allocatable(node, name) for name, amount in asked.items()) for node in nodes):
        return ""
    together = ", ".join(f"{amount} {name}" for name, amount in asked.items())
    return f"no node has {together} together: lower {' or '.join(fields.values())}"


def _copyable(amount: str) -> str:
    """Return an amount as a job file may have it: kubelet tells memory in KiB, to the last one."""
    return f"{int(_number(amount)) >> 20}Mi" if amount.endswith("Ki") else amount


def allocatable(node: Object, resource: str) -> Decimal:
    """Return how much of a resource a node has for pods, in use or not."""
    return _number(node["status"].get("allocatable", {}).get(resource, "0"))


def _number(amount: str) -> Decimal:
    return Quantity.parse(amount).value


def _labels(node: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = node["metadata"].get("labels", {})
    return labels


_PATH = "/api/v1/nodes"
_MOST = 500  # of more, one look does not tell what the others are


def require_room(client: Client, objects: Sequence[Object]) -> None:
    """Raise an InvalidInput where no node can ever hold a task of some job.

    Where nodes may come by themselves, or can't be seen, the scheduler has the last word: `up` passes that on.
    """
    nodes = _list_nodes(client)
    if may_grow(nodes):
        return
    reasons = []
    for made in objects:
        if made["kind"] == "StatefulSet":
            job = status.container_environment(made)["TFK8S_JOB"]
            reason = impossible(job, made["spec"]["template"]["spec"], nodes)
            reasons += [f"no node can ever hold a task of {job}: {reason}"] if reason else []
    if reasons:
        raise InvalidInput("; ".join(reasons), help="or add such nodes first; nothing was made")


def require_gpus(client: Client, resource: str, count: int) -> None:
    """Raise an InvalidInput where no node can ever give a script so many GPUs."""
    nodes = _list_nodes(client)
    if may_grow(nodes):
        return
    most = max(allocatable(node, resource) for node in nodes)
    if most < count:
        raise InvalidInput(
            f"the script asks for {count} {resource}, and no node has more than {most}",
            help="lower --gpus, or add such nodes first; nothing was made",
        )


def _list_nodes(client: Client) -> list[Object]:
    """Return all nodes; none where the user may not see them, or they are too many."""
    try:
        answer = client.get(_PATH, {"limit": _MOST})
    except ApiError as error:
        if error.code != 403:
            raise
        return []
    items: list[Object] = answer["items"]
    return [] if answer["metadata"].get("continue") else items
