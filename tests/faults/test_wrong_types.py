"""An API server whose objects have fields of wrong types, or lack some: one error, and never a bug of tfk8s."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.api_server import ApiServer

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import client
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import BackendUnreachable, ClusterError, Tfk8sError

JOB_FILE = JobFile(name="demo", image="x", jobs=(Job(name="chief"), Job(name="worker", tasks=2)), master="chief")
TRIES = int(os.environ.get("TFK8S_TEST_TRIES", "60"))
EVENT = {
    "apiVersion": "v1", "kind": "Event", "metadata": {"name": "one", "namespace": "here"}, "reason": "Killing",
    "involvedObject": {"kind": "Pod", "name": "demo-worker-0"}, "message": "Stopping container", "type": "Normal",
    "count": 3, "lastTimestamp": "2026-01-01T00:00:00Z",
}  # fmt: skip
NODE = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "labels": {"a": "b"}}, "spec": {"taints": []},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]
    },
}  # fmt: skip
VALUES = [
    None, 0, -1, 1e308, 10**400, True, "", "x", "\ud800", [], {}, [[]], [None], ["x"], {"x": 1}, {"": None},
    "2026-13-45T99:99:99Z", "1e999", "-5Gi",
]  # fmt: skip
MISSING = ...  # in place of a value
POD, WORKLOAD = "/api/v1/namespaces/here/pods/demo-worker-0", "/apis/apps/v1/namespaces/here/statefulsets/demo-worker"
NEEDED = [
    (POD, "metadata.uid"), (POD, "metadata.namespace"), (POD, "metadata.creationTimestamp"), (POD, "spec"),
    (POD, "spec.containers"), (POD, "status"), (WORKLOAD, "kind"), (WORKLOAD, "metadata"), (WORKLOAD, "spec.replicas"),
    (WORKLOAD, "spec.template.metadata.labels"), ("/api/v1/namespaces/here/services/demo", "metadata.name"),
]  # fmt: skip
ACTIONS: dict[str, Callable[[KubernetesBackend], object]] = {
    "status": lambda backend: backend.observe("demo"),
    "ls": lambda backend: backend.clusters(),
    "events": lambda backend: list(backend.events("demo", follow=False)),
    "diff": lambda backend: backend.plan(JOB_FILE),
    "up": lambda backend: backend.apply(JOB_FILE),
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.setattr(client, "RETRY_TIMEOUT", 0.0)
    monkeypatch.setattr(polling, "FIRST_RETRY_INTERVAL", 0.001)
    with ApiServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        KubernetesBackend().apply(JOB_FILE)
        server.make_pods()
        server.put("/api/v1/namespaces/here/events/one", EVENT)
        server.put("/api/v1/nodes/node", NODE)
        yield server


def fields(item: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all that is inside an object."""
    if at:
        yield at
    for key, value in item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ():
        yield from fields(value, (*at, key))


def spoil(item: Any, at: tuple[Any, ...], value: Any) -> None:
    for key in at[:-1]:
        item = item[key]
    if value is MISSING:
        del item[at[-1]]
    else:
        item[at[-1]] = value


def is_refused(action: str, what: str) -> bool:
    try:
        ACTIONS[action](KubernetesBackend(namespace="here"))
    except Tfk8sError:
        return True
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    return False


@pytest.mark.parametrize("values", [VALUES, [MISSING]], ids=["wrong", "missing"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_field_of_a_wrong_type_or_none_is_no_bug(server: ApiServer, action: str, values: list[Any]) -> None:
    good, chance = copy.deepcopy(server.objects), random.Random(action)  # noqa: S311 - the same in each run
    server.has_controllers = False  # they need good objects
    refused = 0
    for _ in range(TRIES):
        server.objects = copy.deepcopy(good)
        path = chance.choice(sorted(good))
        at, value = chance.choice(list(fields(good[path]))), chance.choice(values)
        spoil(server.objects[path], at, copy.deepcopy(value))
        refused += is_refused(action, f"{path} {at} {str(value)[:40]!r}")
    assert refused


@pytest.mark.parametrize(("path", "field"), NEEDED)
def test_what_an_api_server_always_sends_is_needed(server: ApiServer, path: str, field: str) -> None:
    spoil(server.objects[path], tuple(field.split(".")), MISSING)
    server.has_controllers = False
    with pytest.raises(BackendUnreachable, match=f"the field {field} in its answer has no value of Kubernetes"):
        ACTIONS["status" if "pods" in path else "diff"](KubernetesBackend(namespace="here"))


def test_a_status_is_no_object(server: ApiServer) -> None:
    server.objects["/api/v1/namespaces/here/services/demo"] = {"kind": "Status", "status": "Success"}
    with pytest.raises(BackendUnreachable, match="the field kind in its answer"):
        ACTIONS["diff"](KubernetesBackend(namespace="here"))


@pytest.mark.parametrize("lacks", ["variable", "container"])
@pytest.mark.parametrize("action", ["diff", "up"])
def test_a_change_by_another_program_is_named_with_its_cure(server: ApiServer, action: str, lacks: str) -> None:
    workload = server.objects["/apis/apps/v1/namespaces/here/statefulsets/demo-worker"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    if lacks == "container":
        container["name"] = "other"
    else:
        container["env"] = [one for one in container["env"] if one["name"] != "TFK8S_JOB"]
    backend = KubernetesBackend(namespace="here")
    with pytest.raises(ClusterError, match=f'the pods of cluster "demo" lack the {lacks}') as caught:
        ACTIONS[action](backend)
    assert "`tfk8s down demo`" in str(caught.value.help)
    backend.delete("demo")
    assert not any("statefulsets" in path for path in server.objects)
