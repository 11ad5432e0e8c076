"""The types of what is read from an API server's objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from job_files import job_file

from tfk8s.backends.kubernetes.api_server import shapes
from tfk8s.core.spec import Job
from tfk8s.render import manifests

METADATA = {"name": "demo-worker-0", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}}
ENDED = {"exitCode": 137, "reason": "OOMKilled", "startedAt": None, "finishedAt": "2026-01-01T00:00:00Z"}
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": METADATA,
    "spec": {
        "containers": [{"name": "server", "resources": {"limits": {"cpu": 2, "memory": "1e9"}}, "env": [{"name": "A"}]}
        ],
        "tolerations": [{"operator": "Exists"}],
    },
    "status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": None}],
        "containerStatuses": [
            {"name": "server", "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": ENDED}}
        ],
    },
}  # fmt: skip
SPOILT = {
    "metadata.name": 5, "metadata.labels": {"a": 5}, "metadata.creationTimestamp": "2026-13-45T99:99:99Z",
    "spec.containers": {}, "spec.containers[0].name": None, "spec.containers[0].resources.limits": {"cpu": "-1"},
    "spec.containers[0].env[0].name": [], "spec.tolerations[0].operator": True, "status": [], "status.phase": {},
    "status.conditions[0].status": False, "status.containerStatuses[0].restartCount": 10**400,
    "status.containerStatuses[0].state.running": [], "status.containerStatuses[0].lastState.terminated.exitCode": "1",
}  # fmt: skip


def put(item: Any, path: str, value: Any) -> None:
    *parents, last = [int(key) if key.isdigit() else key for key in path.replace("[", ".").replace("]", "").split(".")]
    for key in parents:
        item = item[key]
    item[last] = value


def test_objects_of_kubernetes_have_no_problem() -> None:
    file = job_file("demo", Job(name="ps"), Job(name="worker", tasks=2), gang=True, max_duration=60, image="x")
    rendered = manifests.render(file, b"zip")
    assert len(rendered) >= 8
    assert [shapes.problem(item) for item in rendered] == [""] * len(rendered)
    assert shapes.problem(POD, is_stored=True) == ""
    assert shapes.problem({"kind": "APIGroupList", "groups": [{"name": "apps"}]}) == ""


@pytest.mark.parametrize("path", SPOILT)
def test_a_field_of_another_type_is_named(path: str) -> None:
    spoilt = copy.deepcopy(POD)
    put(spoilt, path, SPOILT[path])
    assert shapes.problem(spoilt, is_stored=True) == path


def test_what_an_api_server_keeps_has_a_name_and_a_time() -> None:
    assert shapes.problem({"metadata": {}}) == ""
    assert shapes.problem({"metadata": {"name": "a"}}, is_stored=True) == "metadata.creationTimestamp"
    assert shapes.problem({}, is_stored=True) == "metadata"
