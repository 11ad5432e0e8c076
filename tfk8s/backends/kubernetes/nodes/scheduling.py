"""Compares a task with each node: the task's requests, its node labels and tolerations with all that the node has.

Resources in use and cordoned nodes are ignored, because both may change while a pod waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tfk8s.backends.kubernetes.api_server import errors, paths
from tfk8s.backends.kubernetes.api_server.client import Client, Query
from tfk8s.backends.kubernetes.pods.total_requests import allocatable, field_of, requests
from tfk8s.core.job_file.spot import SPOT_NODES
from tfk8s.core.resources import MEMORY, Resources, amount_text
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput
from tfk8s.render import placement, pods
from tfk8s.render.pods import Object

# Nodes with one of these labels belong to pools, nodes with a provider's id to a cloud. Both may grow when a pod waits.
_POOLS = (
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
)  # fmt: skip
_FIXED_PROVIDERS = ("", "kind")  # their nodes do not become more
_TRANSIENT = "node.kubernetes.io/"  # taints that Kubernetes itself sets and removes
_REPELLING = ("NoSchedule", "NoExecute")
_MAX_ITEMS = 500  # more nodes or pods take several requests, and are not compared
_WITH_RESOURCES = ("containers", "initContainers", "resources")  # keys of a pod's spec


@dataclass(frozen=True, slots=True)
class JobFields:
    """The fields of one job.

    Attributes:
        job_file: the job file.
        job: the job.
    """

    job_file: JobFile
    job: Job

    def of_request(self, resource: str, pod: Object) -> str:
        """Return the field that most of a pod's request of a resource comes from."""
        own = Resources.parse(pods.resources(self.job)["requests"])[resource]
        shm = self.job.shm.value if self.job.shm and resource == MEMORY else Decimal(0)
        added = requests(pod)[resource] - own
        if added > own - shm and added > shm:
            has_resources = any(key in self.job.pod for key in _WITH_RESOURCES)
            return f"jobs.{self.job.name}.pod" if has_resources else "pod"
        return f"jobs.{self.job.name}.{'shm' if shm > own - shm else field_of(resource)}"

    def of_label(self, label: str, value: str) -> str:
        """Return the field that a label of the job's nodes comes from."""
        parts = {f"jobs.{self.job.name}.pod": self.job.pod, "pod": self.job_file.pod}
        for field, part in parts.items():
            if label in part.get("nodeSelector", {}):
                return f"{field}.nodeSelector"
        key = placement.field_of(label, value)
        return f"jobs.{self.job.name}.{'node_selector' if key == 'spot' and not self.job.spot else key}"


def may_grow(nodes: Sequence[Object]) -> bool:
    """Return whether more nodes may join by themselves. True without nodes."""
    return not nodes or any(map(_is_scalable, nodes))


def _is_scalable(node: Object) -> bool:
    provider = node["spec"].get("providerID", "").partition(":")[0]
    return provider not in _FIXED_PROVIDERS or any(label in _labels(node) for label in _POOLS)


def why_impossible(fields: JobFields, pod: Object, nodes: Sequence[Object]) -> str:
    """Return why no node can ever hold a pod, with the field of the job file to change; "" if a node can.

    Args:
        fields: the job's fields in the job file.
        pod: the spec of the job's pods.
        nodes: all nodes, at least one.
    """
    selector = pod.get("nodeSelector", {})
    for label, value in selector.items():
        if all(_labels(node).get(label) != value for node in nodes):
            return _no_label(fields, label, value, nodes)
    avoided = placement.avoided(pod)
    nodes = [node for node in nodes if node["metadata"]["name"] not in avoided]
    if not nodes:
        return "it avoids every node: shorten avoid"
    selected = [node for node in nodes if selector.items() <= _labels(node).items()]
    if not selected:
        labels = ", ".join(f"{label}={value}" for label, value in selector.items())
        changed = dict.fromkeys(itertools.starmap(fields.of_label, selector.items()))
        return f"no node has all of {labels}: change {' or '.join(changed)}"
    for label in _required_topology(pod):
        if all(label not in _labels(node) for node in selected):
            return f"no node has the label {label}: change jobs.{fields.job.name}.topology"
    tolerated = [node for node in selected if not _repelling_taint(pod, node)]
    if not tolerated:
        taint = _repelling_taint(pod, selected[0])
        return f"every node has a taint that it does not tolerate ({taint}): add to jobs.{fields.job.name}.tolerations"
    return _why_too_small(fields, pod, tolerated)


def _required_topology(pod: Object) -> list[str]:
    """Return the node labels without which the scheduler's rules about other pods let no node take a pod."""
    spread = pod.get("topologySpreadConstraints", ())
    pack = pod.get("affinity", {}).get("podAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", ())
    required = [rule for rule in spread if rule.get("whenUnsatisfiable") == "DoNotSchedule"]
    return [rule["topologyKey"] for rule in (*required, *pack) if "topologyKey" in rule]


def _no_label(fields: JobFields, label: str, value: str, nodes: Sequence[Object]) -> str:
    values = sorted({_labels(node)[label] for node in nodes if label in _labels(node)})
    others = f", only {label}={', '.join(values)}" if values else ""
    field = fields.of_label(label, value)
    known = sorted({name for node in nodes for name, spot in SPOT_NODES.items() if spot.label in _labels(node)})
    value_to_write = f" to {' or '.join(known)}" if field.endswith(".spot") and known and not values else ""
    return f"no node has the label {label}={value}{others}: change {field}{value_to_write}"


def can_hold(pod: Object, node: Object) -> bool:
    """Return whether a node that is empty, and ready, can hold a pod."""
    selector, requested, present = pod.get("nodeSelector", {}), requests(pod), allocatable(node)
    return (
        selector.items() <= _labels(node).items()
        and node["metadata"]["name"] not in placement.avoided(pod)
        and not _repelling_taint(pod, node)
        and all(amount <= present[name] for name, amount in requested.amounts.items())
    )


def _repelling_taint(pod: Object, node: Object) -> str:
    """Return a taint of a node that the pod does not tolerate, as kubectl writes it; "" if it tolerates all."""
    for taint in node["spec"].get("taints", ()):
        harmless = taint["key"].startswith(_TRANSIENT) or taint["effect"] not in _REPELLING
        if not harmless and not any(_tolerates(item, taint) for item in pod.get("tolerations", ())):
            return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
    return ""


def is_closed(node: Object) -> bool:
    """Return whether Kubernetes itself keeps new pods from a node: a cordoned node, or one that is not ready."""
    taints = node["spec"].get("taints", ())
    return any(taint["key"].startswith(_TRANSIENT) and taint["effect"] in _REPELLING for taint in taints)


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    """Return whether a toleration matches a taint (k8s.io/api/core/v1, Toleration.ToleratesTaint)."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _why_too_small(fields: JobFields, pod: Object, nodes: Sequence[Object]) -> str:
    requested = requests(pod)
    lowered = {name: fields.of_request(name, pod) for name in requested.amounts}
    for name, amount in requested.amounts.items():
        maximum = max(allocatable(node)[name] for node in nodes)
        if amount > maximum:
            more = _more_than(amount_text(name, maximum))
            return f"it asks for {amount_text(name, amount)} {name}, and no node has {more}: lower {lowered[name]}"
    if any(can_hold(pod, node) for node in nodes):
        return ""
    return f"no node has {requested} together: lower {' or '.join(dict.fromkeys(lowered.values()))}"


def _labels(node: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = node["metadata"].get("labels", {})
    return labels


def _more_than(maximum: str) -> str:
    return "any" if maximum == "0" else f"more than {maximum}"


def require_gpus(client: Client, resource: str, count: int) -> None:
    """Raise an InvalidInput if no node has as many GPUs as a script asks for."""
    nodes = list_nodes(client)
    if may_grow(nodes):
        return
    maximum = max(allocatable(node)[resource] for node in nodes)
    if maximum < count:
        raise InvalidInput(
            f"the script asks for {count} {resource}, and no node has {_more_than(str(maximum))}",
            help="lower --gpus, or add such nodes first; nothing was created",
        )


def list_nodes(client: Client) -> list[Object]:
    """Return all nodes; none if the user may not list them, or if they are too many."""
    return list_few(client, paths.NODES)


def list_few(client: Client, path: str, query: Query | None = None) -> list[Object]:
    """Return all objects of a list; none if the user may not list them, or if they are too many."""
    with errors.suppress(403):
        answer = client.get(path, {**(query or {}), "limit": _MAX_ITEMS})
        if not answer["metadata"].get("continue"):
            return list(answer["items"])
    return []
