"""The clusters that get a PodGroup, and the PodGroup's number of tasks."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes import apply
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.workloads import deployed, gangs
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests
from tfk8s.render.pods import Object

POD_GROUPS = frozenset({"scheduling.k8s.io/v1beta1"})
JOBS = (Job(name="ps"), Job(name="worker", tasks=2))


class PodGroupClient:
    """An API server that has objects, notes what is applied and deleted, and may forbid PodGroups."""

    context, namespace = "test", "ns"

    def __init__(self, *objects: Object, forbids: bool = False) -> None:
        self.objects = {paths.path(item, "ns"): item for item in objects}
        self.forbids = forbids
        self.requests: list[tuple[str, str]] = []
        self.applied: list[Object] = []

    def find(self, path: str) -> Object | None:
        self.requests.append(("GET", path))
        if self.forbids and "/podgroups/" in path:
            raise ApiError(403, '"jo" may not get podgroups')
        return self.objects.get(path)

    def apply(self, path: str, item: Object, **_: object) -> Object:
        self.applied.append(item)
        return item

    def send(self, method: str, path: str, query: object = None) -> Object:
        self.requests.append((method, path))
        return {}


def cluster(**settings: Any) -> JobFile:
    return job_file("demo", *JOBS, image="tf:1", **settings)


def decide(client: PodGroupClient, file: JobFile, served: frozenset[str] = POD_GROUPS) -> bool | None:
    found: Any = client
    return gangs.decided(found, "ns", file, served).gang


def test_a_new_cluster_is_a_gang_where_the_api_server_has_pod_groups() -> None:
    assert decide(PodGroupClient(), cluster()) is True
    assert decide(PodGroupClient(), cluster(gang=False)) is False


def test_without_pod_groups_nothing_is_asked() -> None:
    client = PodGroupClient()
    assert decide(client, cluster(), frozenset({"apps/v1"})) is None
    assert client.requests == []


@pytest.mark.parametrize("settings", [{"queue": "gold"}, {"pod": {"schedulingGroup": {"podGroupName": "own"}}}])
def test_clusters_that_are_no_gang_by_themselves(settings: dict[str, Any]) -> None:
    assert decide(PodGroupClient(), cluster(**settings)) is None


@pytest.mark.parametrize("was", [True, False])
def test_a_cluster_that_exists_stays_what_it_is(was: bool) -> None:
    client = PodGroupClient(*render.objects(cluster(gang=was), "ns"))
    assert decide(client, cluster()) is was


def test_a_user_without_the_right_gets_no_gang_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert decide(PodGroupClient(forbids=True), cluster()) is False
    assert caplog.messages == [
        'the tasks are started one by one, and not as a gang: "jo" may not get podgroups',
    ]


def test_gang_true_needs_pod_groups() -> None:
    with pytest.raises(
        InvalidInput, match=r"^gang: true needs PodGroups, and the API server has no scheduling\.k8s\.io/"
    ):
        decide(PodGroupClient(), cluster(gang=True), frozenset())


def test_a_cluster_that_is_no_gang_any_more_loses_its_pod_group() -> None:
    before = render.objects(cluster(gang=True), "ns")
    assert gangs.obsolete("demo", before, before) == []
    found = gangs.obsolete("demo", [*before, None], render.objects(cluster(), "ns"))
    assert found == [{"kind": "PodGroup", "metadata": {"name": "demo"}}]
    assert gangs.obsolete("demo", render.objects(cluster(), "ns"), render.objects(cluster(), "ns")) == []


def test_a_pod_group_that_is_being_deleted_is_waited_for() -> None:
    """A change of the PodGroup of before would be lost with it."""
    (group,) = (item for item in render.objects(cluster(gang=True), "ns") if item["kind"] == "PodGroup")
    going = {**group, "metadata": {**group["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    client: Any = PodGroupClient()
    assert gangs.living(client, "ns", going) is None
    assert client.requests == [("GET", paths.path(group, "ns"))]
    assert gangs.living(client, "ns", group) is group
    assert gangs.living(client, "ns", None) is None


def test_scale_changes_the_number_of_the_pod_group_before_that_of_the_pods() -> None:
    before = render.objects(cluster(gang=True), "ns")
    client: Any = PodGroupClient(*before)
    found = deployed.describe([item for item in before if manifests.has_tasks(item)])
    apply.scale(client, found, {"worker": 5})
    assert [item["kind"] for item in client.applied] == ["PodGroup", "StatefulSet"]
    expected = next(item for item in before if item["kind"] == "PodGroup")
    expected["spec"]["schedulingPolicy"]["gang"]["minCount"] = 6
    del expected["metadata"]["namespace"]
    assert client.applied[0] == expected


def test_scale_without_a_gang_asks_for_no_pod_group() -> None:
    before = render.objects(cluster(), "ns")
    client: Any = PodGroupClient(*before)
    found = deployed.describe([item for item in before if manifests.has_tasks(item)])
    apply.scale(client, found, {"worker": 5})
    assert [item["kind"] for item in client.applied] == ["StatefulSet"]


@pytest.mark.parametrize(
    ("settings", "kind"), [({"gang": True}, "PodGroup"), ({"queue": "gold"}, "Kueue"), ({}, "")], ids=str
)
def test_who_starts_the_tasks_together(settings: dict[str, Any], kind: str) -> None:
    workloads = [item for item in render.objects(cluster(**settings), "ns") if manifests.has_tasks(item)]
    assert gangs.kind(workloads, "demo") == kind
