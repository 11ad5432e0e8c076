"""Clusters from their StatefulSets; the status of their tasks is in test_informer.py and tests/faults."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.stateful_sets import JOB_FILE, stateful_sets
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes import status
from tfk8s.backends.kubernetes.api_server import errors
from tfk8s.backends.kubernetes.api_server.streams import reaching
from tfk8s.backends.kubernetes.parts import SharedNamespace
from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.core.spec import Job, Task
from tfk8s.core.status import Phase, TaskStatus
from tfk8s.errors import ClusterError, TaskUnreachable
from tfk8s.render import manifests


def test_each_stateful_set_describes_the_whole_cluster() -> None:
    for stateful_set in stateful_sets():
        cluster = deployed.describe([stateful_set])
        assert (cluster.name, cluster.namespace, cluster.master) == ("demo", "ns", Task("chief", 0))
        assert list(cluster.jobs) == [job.name for job in JOB_FILE.jobs]
        assert cluster.target == "grpc://demo-chief-0.demo.ns.svc:2222"
        assert cluster.address(Task("My_ps", 1)).endswith("-1.demo.ns.svc:2300")
    assert deployed.describe(stateful_sets()).tasks == list(JOB_FILE)
    without_ps = deployed.describe(stateful_sets()[:1])
    assert without_ps.workload("My_ps") is None
    assert without_ps.tasks[-1] == Task("My_ps", 0)


def test_the_service_of_tf_data_is_known_from_the_objects() -> None:
    jobs = (Job(name="worker"), Job(name="input", kind="data", tasks=2, port=2300))
    rendered = render.objects(job_file("demo", *jobs, image="tf:1"), "ns")
    cluster = deployed.describe([item for item in rendered if item["kind"] == "StatefulSet"])
    assert cluster.data_service == "grpc://demo-input-0.demo.ns.svc:2300"
    assert {job: cluster.is_data(job) for job in cluster.jobs} == {"worker": False, "input": True}
    assert cluster.has_servers


@pytest.mark.parametrize(("note", "expected"), [("30", "30"), ("nan", None), ("9" * 5000, None), ("-1", None)])
def test_a_script_elsewhere_has_the_grace_of_its_cluster(note: str, expected: str | None) -> None:
    items = stateful_sets()
    for item in items:
        item["metadata"]["annotations"]["tfk8s.dev/grace"] = note
        item["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    reader: Any = SimpleNamespace(get=lambda *_: {"items": []}, context="kind")
    assert status.read(reader, deployed.describe(items)).variables.get("TFK8S_GRACE") == expected


def test_events_take_one_request() -> None:
    """They explain why a pod waits, and tell of the nodes of earlier pods."""
    items = stateful_sets()
    for item in items:
        item["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {"statefulset.kubernetes.io/pod-name": "demo-chief-0", manifests.COMPONENT: "chief"}
    metadata = {"name": "demo-chief-0", "uid": "1", "labels": labels, "creationTimestamp": created}
    pod = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Pending"}}
    requests = []

    class Api:
        context = "kind"

        def get(self, path: str, query: object = None) -> dict[str, Any]:
            requests.append(path.rpartition("/")[2])
            return {"items": [pod] if path.endswith("/pods") else []}

    reader: Any = Api()
    status.read(reader, deployed.describe(items))
    assert requests.count("events") == 1


def broken(part: str, value: object) -> list[dict[str, Any]]:
    """Return the StatefulSets of a cluster of somebody else, in which a part has another value."""
    items = stateful_sets()
    for item in items:
        metadata, server = item["metadata"], item["spec"]["template"]["spec"]["containers"][0]
        metadata["labels"] |= {"app.kubernetes.io/instance": "theirs"}
        if part == "env":
            server["env"] = value
        elif part == "labels":
            metadata["labels"] = {"app.kubernetes.io/name": "tfk8s", "app.kubernetes.io/component": value}
        else:
            metadata["annotations"] |= {part: value}
    return items


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("env", []), ("env", [{"name": "TFK8S_GPUS", "value": "x"}]), ("tfk8s.dev/jobs", "x"), ("tfk8s.dev/jobs", ""),
        ("labels", "a"),
    ],
)  # fmt: skip
def test_a_cluster_that_somebody_has_broken_hides_no_other(
    part: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    items = [*stateful_sets(), *broken(part, value)]
    for item in items:
        item["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"

    def get(path: str, *_: object) -> dict[str, Any]:
        return {"items": items if path.endswith("/statefulsets") else []}

    reader: Any = SimpleNamespace(get=get, context="kind")
    clusters = status.clusters(reader, "ns")
    assert {cluster.namespace for cluster in clusters} == {"ns"}
    found = [cluster.name for cluster in clusters]
    if "theirs" not in found:  # some values have no meaning here
        assert 'in namespace "ns" are not as tfk8s makes them: ' in caplog.text
    assert "demo" in found


@pytest.mark.parametrize(
    ("namespace", "refused", "only"),
    [(None, "", ""), (None, "/apis/apps/v1/statefulsets", "ns"), (None, "/apis/batch/v1/jobs", "ns"), ("team", "", "")],
)
def test_a_list_of_all_namespaces_that_has_one_alone(namespace: str | None, refused: str, only: str) -> None:
    asked: list[str] = []

    def get(path: str, query: dict[str, Any]) -> dict[str, Any]:
        asked.append(path)
        assert query["limit"] == 1
        if path == refused:
            raise errors.from_response(403, b"{}", "kind")
        return {"items": []}

    client: Any = SimpleNamespace(get=get, context="kind", namespace="ns")
    assert SharedNamespace(client, namespace, str).only_namespace() == only
    assert (len(asked) > 0) is (namespace is None)


REFUSALS = ((500, 'container not found ("server")'), (400, "container server is not available"), (404, "not found"))


@pytest.mark.parametrize(("code", "message"), REFUSALS)
@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"phase": Phase.SUCCEEDED, "exit_code": 0, "is_program": True}, "worker/0 has ended with exit code 0"),
        ({"phase": Phase.SUCCEEDED, "is_program": True, "reason": "ended: the run succeeded"}, "worker/0 has ended"),
        ({"phase": Phase.FAILED, "exit_code": 1, "is_program": True}, "worker/0 has ended with exit code 1"),
        ({"phase": Phase.PENDING, "reason": "no node"}, "worker/0 does not run: it is pending (no node)"),
        ({"phase": Phase.FAILED, "reason": "killed"}, "worker/0 does not run: it is failed (killed)"),
    ],
)  # fmt: skip
def test_a_command_in_a_container_that_does_not_run_names_the_task(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], words: str, code: int, message: str
) -> None:
    error = refused(monkeypatch, TaskStatus(task=Task("worker", 0), address="", **found), code, message)
    assert isinstance(error, TaskUnreachable)
    assert str(error) == words


def test_the_error_of_a_command_in_a_container_that_runs_is_the_api_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = TaskStatus(task=Task("worker", 0), address="", phase=Phase.READY)
    assert "overloaded" in str(refused(monkeypatch, ready, 503, "overloaded"))
    ended = TaskStatus(task=Task("worker", 0), address="", phase=Phase.SUCCEEDED, is_program=True)
    assert str(refused(monkeypatch, ended, 403, "no")) == "the API server refuses: no"


def refused(monkeypatch: pytest.MonkeyPatch, found: TaskStatus, code: int, message: str) -> ClusterError:
    """Return the error about a command that the API server refuses while the task has a status."""

    class Found:
        tasks = (found,)

    monkeypatch.setattr(status, "read", lambda *_: Found)
    cluster: Any = deployed.describe(stateful_sets())
    with (
        pytest.raises((ClusterError, TaskUnreachable)) as caught,
        status.naming_state(None, cluster, Task("worker", 0)),  # type: ignore[arg-type]
        reaching("demo-worker-0"),
    ):
        raise errors.from_response(code, message.encode(), "c")
    return caught.value  # type: ignore[return-value]
