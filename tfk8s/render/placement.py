"""The scheduling rules of a job's pods: the nodes that they may use, and their place in relation to each other."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfk8s.core.job_file.mappings import Topology
from tfk8s.core.job_file.spot import SPOT_NODES, is_spot
from tfk8s.core.spec import Job

Object = dict[str, Any]

GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
# The labels of GKE nodes that describe their GPUs.
GKE_GPU_LABELS = (
    GKE_ACCELERATOR,
    "cloud.google.com/gke-gpu-partition-size",
    "cloud.google.com/gke-gpu-sharing-strategy",
    "cloud.google.com/gke-max-shared-clients-per-gpu",
)
HOST = "kubernetes.io/hostname"
AVOIDED = "tfk8s.dev/avoided"  # the annotation of pods that avoid nodes in one start, with the names of the nodes
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE_LABELS = {"host": HOST, "zone": "topology.kubernetes.io/zone"}


def rules(job: Job, labels: Mapping[str, str], avoid: Sequence[str] = ()) -> Object:
    """Return the part of a pod's spec with the scheduling rules.

    Args:
        labels: the labels that select the job's pods.
        avoid: the names of nodes that the pods may not use.
    """
    selector = dict(job.node_selector)
    tolerations = [dict(toleration) for toleration in job.tolerations]
    if job.accelerator:
        selector[GKE_ACCELERATOR] = job.accelerator
    if job.gpus:
        tolerations.append({"key": job.gpu_resource, "operator": "Exists", "effect": "NoSchedule"})
    if job.spot:
        spot = SPOT_NODES[job.spot]
        selector[spot.label] = spot.value
        tolerations += spot.tolerations
    spec = _topology(job.topology or Topology(), labels)
    if avoid:
        spec.setdefault("affinity", {})["nodeAffinity"] = _not_on(avoid)
    if selector:
        spec["nodeSelector"] = selector
    if tolerations:
        spec["tolerations"] = tolerations
    return spec


def selecting_fields(pod: Object) -> list[str]:
    """Return the fields of a job that the node labels in the spec of a pod come from, or all that may be set."""
    found = dict.fromkeys(itertools.starmap(field_of, pod.get("nodeSelector", {}).items()))
    return list(found) or ["accelerator", "node_selector"]


def field_of(label: str, value: str) -> str:
    """Return the field of a job that selects nodes by a label."""
    if label == GKE_ACCELERATOR:
        return "accelerator"
    return "spot" if is_spot({label: value}) else "node_selector"


def avoided(pod: Object) -> list[str]:
    """Return the names of the nodes that the spec of a pod avoids."""
    rule = pod.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {})
    fields = [field for term in rule.get("nodeSelectorTerms", ()) for field in term.get("matchFields", ())]
    return [name for field in fields if field["operator"] == "NotIn" for name in field["values"]]


def away_from(template: Object, nodes: Iterable[str]) -> Object:
    """Return a pod template whose pods use none of the nodes, and carry an annotation with their names."""
    more = [name for name in nodes if name not in avoided(template["spec"])]
    if not more:
        return template
    made = copy.deepcopy(template)
    affinity = made["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    terms = affinity.setdefault(_REQUIRED, {}).setdefault("nodeSelectorTerms", []) or [{}]
    affinity[_REQUIRED]["nodeSelectorTerms"] = terms
    for term in terms:  # a node needs to match one of them
        term["matchFields"] = [*term.get("matchFields", ()), *map(_is_not, more)]
    made["metadata"].setdefault("annotations", {})[AVOIDED] = ",".join(more)
    return made


def anywhere(template: Object) -> Object:
    """Return a pod template without what `away_from` has added."""
    if not (names := avoided_once(template)):
        return template
    made = copy.deepcopy(template)
    _drop(made["metadata"], "annotations", AVOIDED)
    affinity = made["spec"].get("affinity", {})
    rule = affinity.get("nodeAffinity", {}).get(_REQUIRED, {})
    for term in rule.get("nodeSelectorTerms", ()):
        fields = [field for field in term.get("matchFields", ()) if field not in map(_is_not, names)]
        term["matchFields"] = fields
        if not fields:
            del term["matchFields"]
    if not any(rule.get("nodeSelectorTerms", ())):
        _drop(affinity, "nodeAffinity", _REQUIRED)
        _drop(made["spec"], "affinity", "nodeAffinity", if_empty=True)
    return made


def avoided_once(item: Object) -> list[str]:
    """Return the names that `away_from` has given to a pod template, from the template or one of its pods."""
    return list(filter(None, item["metadata"].get("annotations", {}).get(AVOIDED, "").split(",")))


def _drop(parent: Object, field: str, key: str, *, if_empty: bool = False) -> None:
    """Remove a key of a mapping, perhaps only if its value is empty, and then the mapping if nothing is left."""
    mapping = parent.get(field, {})
    if not (if_empty and mapping.get(key)):
        mapping.pop(key, None)
    if not mapping:
        parent.pop(field, None)


def _is_not(name: str) -> Object:
    """Return a requirement of a node. The API server allows one name in each (ValidateNodeFieldSelector...)."""
    return {"key": "metadata.name", "operator": "NotIn", "values": [name]}


def _not_on(nodes: Sequence[str]) -> Object:
    return {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": list(map(_is_not, nodes))}]}}


def _topology(topology: Topology, labels: Mapping[str, str]) -> Object:
    """Return the rules for the place of a job's pods in relation to each other."""
    place = topology.spread or topology.pack or ""
    node_label, required = _NODE_LABELS.get(place, place), topology.required
    spec: Object = {}
    affinity: Object = {}
    if topology.spread:
        spec["topologySpreadConstraints"] = [_constraint(node_label, labels, required=required)]
    if topology.pack:
        affinity["podAffinity"] = _affinity(node_label, labels, required=required, weight=100)
    if node_label != HOST:
        affinity["podAntiAffinity"] = _affinity(HOST, labels)
    return spec | ({"affinity": affinity} if affinity else {})


def _constraint(node_label: str, labels: Mapping[str, str], *, required: bool) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": node_label,
        "whenUnsatisfiable": "DoNotSchedule" if required else "ScheduleAnyway",
        "nodeTaintsPolicy": "Honor",  # a node that the pods don't tolerate is no place for them
        "labelSelector": {"matchLabels": dict(labels)},
    }


def _affinity(node_label: str, labels: Mapping[str, str], *, required: bool = False, weight: int = 1) -> Object:
    """Return a pod affinity, or a pod anti-affinity, between pods with these labels."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": node_label}
    if required:
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}
