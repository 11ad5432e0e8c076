"""Kubernetes' strategic merge of a part of a pod's spec into the spec of a pod.

Mappings are merged by key. The lists in `MERGE_KEYS` are merged by a key of their entries, as the `patchMergeKey` tags
in k8s.io/api/core/v1/types.go say. All other lists replace each other, with one exception: tolerations are added,
because tfk8s adds the tolerations for GPUs and spot nodes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfk8s.core.naming import SERVER_CONTAINER

MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_ADDED = "tolerations"

Object = dict[str, Any]


def apply(spec: Object, patch: Mapping[str, Any], security: Callable[[], Object]) -> Object:
    """Return a pod's spec with a part of a spec merged into it.

    Args:
        spec: the pod's spec.
        patch: the part.
        security: returns the security context of additional containers, into which their own one is merged.
    """
    merged: Object = merge(spec, patch)
    for container in (*merged["containers"], *merged.get("initContainers", ())):
        if container["name"] != SERVER_CONTAINER:
            container["securityContext"] = merge(security(), container.get("securityContext", {}))
    return merged


def merge(base: Any, patch: Any, key: str = "") -> Any:
    """Return a value with a patch merged into it; `key` is the key of both in a mapping."""
    if isinstance(base, dict) and isinstance(patch, Mapping):
        merged = {name: merge(base[name], value, name) if name in base else value for name, value in patch.items()}
        return {**base, **copy.deepcopy(merged)}
    if isinstance(base, list) and isinstance(patch, list):
        if key == _ADDED:
            return [*base, *(entry for entry in copy.deepcopy(patch) if entry not in base)]
        if key in MERGE_KEYS:
            return _merge_entries(base, patch, MERGE_KEYS[key])
    return copy.deepcopy(patch)


def _merge_entries(base: Sequence[Any], patch: Sequence[Any], merge_key: str) -> list[Any]:
    merged = list(base)
    for entry in patch:
        same = (number for number, other in enumerate(merged) if _name(other, merge_key) == _name(entry, merge_key))
        number = next(same, None) if _name(entry, merge_key) is not None else None
        if number is None:
            merged.append(copy.deepcopy(entry))
        else:
            merged[number] = merge(merged[number], entry)
    return merged


def _name(entry: Any, merge_key: str) -> Any:
    return entry.get(merge_key) if isinstance(entry, dict) else None
