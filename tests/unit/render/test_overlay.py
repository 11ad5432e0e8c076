"""Merges of a part of a pod's spec, with the rules of Kubernetes' strategic merge."""

from __future__ import annotations

import copy
from typing import Any

from tfk8s.render import overlay

SERVER = {"name": "server", "image": "tf", "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": "1"}}}
SPEC = {
    "containers": [SERVER],
    "volumes": [{"name": "tfk8s", "configMap": {"name": "demo"}}],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "nodeSelector": {"zone": "a"},
}
SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def apply(patch: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of the spec that change."""
    before = copy.deepcopy(SPEC)
    merged = overlay.apply(SPEC, patch, lambda: copy.deepcopy(SECURITY))
    assert before == SPEC
    return {key: value for key, value in merged.items() if value != SPEC.get(key)}


MERGES = [
    ({}, {}),
    ({"nodeSelector": {"disk": "ssd"}}, {"nodeSelector": {"zone": "a", "disk": "ssd"}}),
    ({"nodeSelector": {"zone": "b"}}, {"nodeSelector": {"zone": "b"}}),
    ({"dnsConfig": {"options": [{"name": "ndots"}]}}, {"dnsConfig": {"options": [{"name": "ndots"}]}}),
    (
        {"tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "b"}]},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "b"}]},
    ),
    (
        {"volumes": [{"name": "model", "emptyDir": {}}]},
        {"volumes": [SPEC["volumes"][0], {"name": "model", "emptyDir": {}}]},
    ),
    ({"hostAliases": ["no mapping"]}, {"hostAliases": ["no mapping"]}),
    ({"tolerations": "no list"}, {"tolerations": "no list"}),
]


def test_merge_of_a_spec() -> None:
    for patch, changed in MERGES:
        assert apply(patch) == changed, patch


def test_containers_are_merged_by_name_and_their_variables_too() -> None:
    patch = {"name": "server", "env": [{"name": "B"}, {"name": "A", "value": "2"}], "resources": {"limits": {"x/y": 1}}}
    assert apply({"containers": [patch]})["containers"] == [{
        "name": "server", "image": "tf", "env": [{"name": "A", "value": "2"}, {"name": "B"}],
        "resources": {"limits": {"cpu": "1", "x/y": 1}},
    }]  # fmt: skip


def test_an_additional_container_is_last_and_has_the_security_of_the_server() -> None:
    proxy = {"name": "a-proxy", "image": "p", "securityContext": {"runAsUser": 7}}
    assert apply({"containers": [proxy], "initContainers": [{"name": "i"}]}) == {
        "containers": [SERVER, {**proxy, "securityContext": {**SECURITY, "runAsUser": 7}}],
        "initContainers": [{"name": "i", "securityContext": SECURITY}],
    }


def test_the_patch_is_not_shared_with_the_spec() -> None:
    patch = {"volumes": [{"name": "model", "emptyDir": {}}]}
    overlay.apply(SPEC, patch, dict)["volumes"][1]["emptyDir"]["medium"] = "Memory"
    assert patch == {"volumes": [{"name": "model", "emptyDir": {}}]}
