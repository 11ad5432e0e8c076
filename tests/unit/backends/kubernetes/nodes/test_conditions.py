"""Conditions and taints of nodes, in words."""

from __future__ import annotations

from typing import Any

from tfk8s.backends.kubernetes.nodes import conditions


def node(name: str, *taints: str, cordoned: bool = False, **states: str) -> dict[str, Any]:
    """Return a node with taints as kubectl writes them, and conditions as "STATUS" or "STATUS reason"."""
    made: dict[str, Any] = {"metadata": {"name": name}, "spec": {"unschedulable": cordoned}, "status": {}}
    for taint in taints:
        label, _, effect = taint.rpartition(":")
        key, _, value = label.partition("=")
        made["spec"].setdefault("taints", []).append({"key": key, "value": value, "effect": effect})
    for kind, state in states.items():
        status, _, reason = state.partition(" ")
        made["status"].setdefault("conditions", []).append({"type": kind, "status": status, "reason": reason})
    return made


def test_nodes_that_are_ready_have_no_troubles() -> None:
    nodes = [node("a", Ready="True KubeletReady", MemoryPressure="False"), node("b")]
    assert conditions.troubles(nodes) == conditions.taints(nodes) == []


def test_troubles_are_grouped_with_the_names_of_nodes() -> None:
    nodes = [
        node("a", Ready="Unknown NodeStatusUnknown"),
        node("b", Ready="True", DiskPressure="True KubeletHasDiskPressure"),
        node("c", Ready="False", GpuUnhealthy="True XidError"),
        *(node(f"d{number}", cordoned=True) for number in range(7)),
    ]
    assert conditions.troubles(nodes) == [
        "not ready (NodeStatusUnknown): a",
        "DiskPressure (KubeletHasDiskPressure): b",
        "not ready: c",
        "GpuUnhealthy (XidError): c",
        "cordoned: d0, d1, d2, d3, d4 and 2 more",
    ]


def test_taints_that_keep_pods_away() -> None:
    nodes = [
        node("a", "nvidia.com/gpu=present:NoSchedule", "x:PreferNoSchedule"),
        node("b", "nvidia.com/gpu=present:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule", "y:NoExecute"),
    ]
    assert conditions.taints(nodes) == ["nvidia.com/gpu=present:NoSchedule: a, b", "y:NoExecute: b"]
