"""The pods of a cluster besides its tasks: the labels, annotations and settings that they have from the master's pod.

The Helm chart's template `tfk8s.otherPod` returns the same.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tfk8s.render import kueue, placement

Object = dict[str, Any]

# The fields of a pod's spec that belong to tasks alone: their place in relation to each other and on nodes, their
# devices and resources, and the conditions for their start.
_OF_TASKS = (
    "affinity", "nodeName", "readinessGates", "resourceClaims", "resources", "restartPolicy", "schedulingGates",
    "schedulingGroup", "subdomain", "topologySpreadConstraints",
)  # fmt: skip


def metadata(master: Object, own_labels: Mapping[str, str]) -> Object:
    """Return the labels and annotations of another pod of the cluster, from the master's pod template."""
    made = {"labels": {**_own(master["metadata"]["labels"]), **own_labels}}
    if annotations := _own(master["metadata"].get("annotations", {})):
        made["annotations"] = annotations
    return made


def spec(master: Object) -> Object:
    """Return a new spec of another pod of the cluster, from the spec of the master's pod.

    The spec has the master's containers and volumes. The fields that belong to tasks alone and the labels of nodes with
    GPUs are left out.
    """
    made: Object = copy.deepcopy({key: value for key, value in master.items() if key not in _OF_TASKS})
    if "nodeAffinity" in master.get("affinity", {}):
        made["affinity"] = {"nodeAffinity": copy.deepcopy(master["affinity"]["nodeAffinity"])}
    nodes = made.pop("nodeSelector", {})
    if labels := {label: value for label, value in nodes.items() if label not in placement.GKE_GPU_LABELS}:
        made["nodeSelector"] = labels
    for container in made.get("initContainers", ()):
        container.get("resources", {}).pop("claims", None)  # a claim names an entry of resourceClaims
    return made


def _own(names: Mapping[str, str]) -> dict[str, str]:
    """Return labels or annotations without those by which Kueue counts the pods of tasks."""
    return {name: value for name, value in names.items() if not name.startswith(kueue.PREFIX)}
