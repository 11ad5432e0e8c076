"""The types of what is read from an API server's objects."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from job_files import job_file

from tfk8s.backends.kubernetes.api_server import answers, shapes
from tfk8s.core.spec import Job
from tfk8s.render import manifests

METADATA = {
    "name": "demo-worker-0", "namespace": "here", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"a": "b"}, "resourceVersion": "7",
}  # fmt: skip
ENDED = {"exitCode": 137, "reason": "OOMKilled", "startedAt": None, "finishedAt": "2026-01-01T00:00:00Z"}
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": METADATA,
    "spec": {
        "containers": [{"name": "server", "resources": {"limits": {"cpu": 2, "memory": "1e9"}}, "env": [{"name": "A"}]}
        ],
        "tolerations": [{"operator": "Exists"}], "restartPolicy": "Always",
    },
    "status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": None}],
        "containerStatuses": [
            {
                "name": "server", "restartCount": 1, "ready": True, "state": {"running": {}},
                "lastState": {"terminated": ENDED},
            }
        ],
    },
}  # fmt: skip
REVIEW = {
    "kind": "SelfSubjectAccessReview", "metadata": {"creationTimestamp": None}, "spec": {}, "status": {"allowed": True}
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
    assert shapes.problem(POD, "Pod", is_stored=True) == ""
    assert shapes.problem({"kind": "APIGroupList", "groups": [{"name": "apps", "versions": []}]}) == ""


@pytest.mark.parametrize("path", SPOILT)
def test_a_field_of_another_type_is_named(path: str) -> None:
    spoilt = copy.deepcopy(POD)
    put(spoilt, path, SPOILT[path])
    assert shapes.problem(spoilt, "Pod", is_stored=True) == path


def test_what_an_api_server_keeps_has_a_name_a_uid_and_a_time() -> None:
    assert shapes.problem({"metadata": {}}) == ""
    assert shapes.problem({"metadata": {"name": "a"}}, "") == "metadata.uid"
    assert shapes.problem({}, "") == "metadata"
    kept = {"metadata": {"name": "a", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert shapes.problem(kept, "") == shapes.problem({**kept, "spec": {}, "status": {}}, "Node") == ""
    assert shapes.problem(kept, "Secret") == "metadata.namespace"
    assert shapes.problem(kept, "", is_stored=True) == "metadata.resourceVersion"  # not in the answer to a dry run


@pytest.mark.parametrize("text", ["0001-01-01", "2026-01-01", "2026-01-01T00:00:00", "0000-01-01T00:00:00Z", None])
def test_a_time_has_a_zone(text: str | None) -> None:
    spoilt = {**POD, "metadata": {**METADATA, "creationTimestamp": text}}
    assert shapes.problem(spoilt, "Pod") == "metadata.creationTimestamp"


@pytest.mark.parametrize(
    ("method", "path", "answer", "problem"),
    [
        ("GET", "/api/v1/namespaces/here/pods/a", {"kind": "Status"}, "kind"),
        ("GET", "/api/v1/namespaces/here/pods/a", POD | {"kind": "Node"}, "kind"),
        ("GET", "/api/v1/namespaces/here/pods/a", POD | {"kind": []}, "kind"),
        ("GET", "/api/v1/namespaces/here", {"kind": "Status"}, "kind"),
        ("GET", "/api/v1/pods?limit=2", {"kind": "Status"}, "items"),
        ("GET", "/api/v1/nodes", {"metadata": {}, "items": []}, "metadata.resourceVersion"),
        ("PATCH", "/api/v1/namespaces/here/pods/a", {"kind": "Status"}, "kind"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", REVIEW | {"status": {}}, "status.allowed"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", REVIEW, ""),
        ("POST", "/api/v1/namespaces/here/pods/a/eviction", {"kind": "Status", "status": "Success"}, ""),
        ("DELETE", "/api/v1/namespaces/here/pods/a", {"kind": "Status", "metadata": {}, "status": "Success"}, ""),
        ("DELETE", "/api/v1/namespaces/here/pods/a", {"kind": "Status", "metadata": 5}, "metadata"),
        ("DELETE", "/api/v1/namespaces/here/pods/a", POD, ""),
        ("GET", "/api/v1/namespaces/here/pods/a", POD, ""),
        ("GET", "/apis/karpenter.sh/v1", {"kind": "APIResourceList", "resources": []}, ""),
        ("GET", "/version", {"major": "1", "minor": "35"}, ""),
    ],
)
def test_an_answer_has_what_was_asked_for(method: str, path: str, answer: dict[str, Any], problem: str) -> None:
    if problem:
        with pytest.raises(OSError, match=f"the field {problem} in its answer"):
            answers.parse(json.dumps(answer).encode(), method, path)
    else:
        assert answers.parse(json.dumps(answer).encode(), method, path) == answer
