"""The conditions and taints of nodes, in words: nodes that are not ready, short of something, cordoned, or tainted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfk8s.errors import listed
from tfk8s.render.pods import Object

_READY = "Ready"
_CORDON = "node.kubernetes.io/unschedulable"
_MAX_NAMED = 5


def troubles(nodes: Sequence[Object]) -> list[str]:
    """Return a text for each trouble of nodes, with their names. Empty if all nodes are ready, and take pods.

    All conditions but Ready are troubles while they are true, also those of node-problem-detector (Kubernetes' own:
    MemoryPressure, DiskPressure, PIDPressure, NetworkUnavailable).

    Args:
        nodes: as the API server lists them.
    """
    return _grouped((node, text) for node in nodes for text in _conditions(node))


def taints(nodes: Sequence[Object]) -> list[str]:
    """Return a text for each taint that keeps pods without a toleration from nodes, with the nodes' names."""
    return _grouped((node, text) for node in nodes for text in _taints(node))


def _conditions(node: Object) -> Iterator[str]:
    for condition in node["status"].get("conditions", ()):
        kind, holds = condition["type"], condition["status"] == "True"
        reason = f" ({condition['reason']})" if condition.get("reason") else ""
        if kind == _READY and not holds:
            yield f"not ready{reason}"
        elif kind != _READY and holds:
            yield f"{kind}{reason}"
    if node["spec"].get("unschedulable"):
        yield "cordoned"


def _taints(node: Object) -> Iterator[str]:
    for taint in node["spec"].get("taints", ()):
        if taint["effect"] != "PreferNoSchedule" and taint["key"] != _CORDON:
            value = f"={taint['value']}" if taint.get("value") else ""
            yield f"{taint['key']}{value}:{taint['effect']}"


def _grouped(found: Iterator[tuple[Object, str]]) -> list[str]:
    names: dict[str, list[str]] = {}
    for node, text in found:
        names.setdefault(text, []).append(node["metadata"]["name"])
    return [f"{text}: {listed(nodes, _MAX_NAMED)}" for text, nodes in names.items()]
