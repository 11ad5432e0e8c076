"""The clusters that get a PodGroup, and the PodGroup's number of tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes import apply, status
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.api_server.field_errors import FieldError, InvalidFields
from tfk8s.backends.kubernetes.workloads import deployed, gangs
from tfk8s.core.programs import Program
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

    def get(self, path: str, query: object) -> Object:
        return {"items": [item for key, item in self.objects.items() if key.rpartition("/")[0] == path]}

    def apply(self, path: str, item: Object, **_: object) -> Object:
        before = self.objects.get(path, item)
        if item["kind"] == "Job" and before["spec"]["template"] != item["spec"]["template"]:
            field = FieldError("spec.template", "field is immutable")
            raise ApiError(422, "no", invalid=InvalidFields("Job", (field,)))
        self.applied.append(item)
        return {**before, **item, "metadata": {**before["metadata"], **item["metadata"]}}

    def number(self, objects: Sequence[Object]) -> int:
        """Return the number of tasks that start together after an `up` with these objects."""
        client: Any = self
        apply.apply(client, "ns", "demo", objects, dry_run=True)
        (group,) = (item for item in self.applied if item["kind"] == "PodGroup")
        return int(group["spec"]["schedulingPolicy"]["gang"]["minCount"])

    def send(self, method: str, path: str, query: object = None, body: object = None) -> Object:
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


def programs(**settings: Any) -> list[Object]:
    jobs = (Job(name="ps"), Job(name="worker", tasks=4, program=Program(("train",))))
    return render.objects(job_file("demo", *jobs, image="tf:1", gang=True, **settings), "ns")


def ended(objects: Sequence[Object], status: Object, note: str = "") -> list[Object]:
    """Return a cluster's objects; its Job of programs has a status, and perhaps the note of `tfk8s wait`."""
    found = [{**item, "metadata": {**item["metadata"], "uid": "u"}} for item in objects]
    for item in filter(manifests.is_program, found):
        item["status"] = status
        if note:
            item["metadata"]["annotations"] = {"tfk8s.dev/run-end": note}
    return found


@pytest.mark.parametrize(
    ("status", "note", "expected"),
    [
        ({}, "", 5), ({"completedIndexes": "1"}, "", 4), ({"completedIndexes": "0-1,3"}, "", 2), ({}, "Complete", 1),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, "", 1), ({"completedIndexes": "?"}, "", 5),
    ],
)  # fmt: skip
def test_up_lets_those_tasks_start_together_that_have_not_ended(status: Object, note: str, expected: int) -> None:
    client = PodGroupClient(*ended(programs(), status, note))
    assert client.number(programs()) == expected


def test_up_lets_all_start_together_that_run_again() -> None:
    client = PodGroupClient(*ended(programs(), {"completedIndexes": "1-2"}))
    assert client.number(programs(env={"CHANGED": "yes"})) == 5


def test_the_objects_of_a_cluster_without_programs_stay_the_same() -> None:
    objects = render.objects(cluster(gang=True), "ns")
    assert gangs.without_ended(objects, objects) is objects


@pytest.mark.parametrize(("verb", "expected"), [({"has_ended": True}, 3), ({}, 5)], ids=["resume", "restart"])
def test_resume_and_restart_count_what_they_start(verb: dict[str, bool], expected: int) -> None:
    client: Any = PodGroupClient()
    workloads = [item for item in ended(programs(), {"completedIndexes": "1-2"}) if manifests.has_tasks(item)]
    gangs.scale(client, "ns", "demo", workloads, {}, **verb)
    (group,) = client.applied
    assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == expected
    for item in workloads:
        item["metadata"]["labels"][manifests.MANAGED_BY] = "Helm"
    gangs.scale(client, "ns", "demo", workloads, {}, **verb)
    assert len(client.applied) == 1  # the PodGroup is Helm's


def test_status_has_the_cure_of_a_pod_that_waits_for_its_gang() -> None:
    found = ended(programs(), {"completedIndexes": "1"})
    workloads = [item for item in found if manifests.has_tasks(item)]
    for item in workloads:
        item["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    (template,) = (item["spec"]["template"] for item in workloads if item["kind"] == "Job")
    labels = {
        **template["metadata"]["labels"], "batch.kubernetes.io/job-name": "demo-worker",
        "batch.kubernetes.io/job-completion-index": "0",
    }  # fmt: skip
    metadata = {"name": "demo-worker-0-abcde", "uid": "p", "labels": labels}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    pod = {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}
    client: Any = PodGroupClient()
    client.get = lambda path, query=None: {"items": [pod] if path.endswith("/pods") else []}
    tasks = {str(task.task): task.reason for task in status.read(client, deployed.describe(workloads)).tasks}
    waits = "it waits until all pods of its gang are there, and a program has ended: `tfk8s up` lets it start"
    assert tasks["worker/0"] == waits


def test_a_pod_that_waits_for_pods_that_have_ended_has_a_cure() -> None:
    waits = "it waits until all pods of its gang are there"
    assert gangs.why_it_waits(waits, programs()) == waits
    found = ended(programs(), {"completedIndexes": "1"})
    workloads = [item for item in found if manifests.has_tasks(item)]
    assert gangs.why_it_waits("no node", workloads) == "no node"
    assert gangs.why_it_waits(waits, workloads) == f"{waits}, and a program has ended: `tfk8s up` lets it start"
    workloads[0]["metadata"]["labels"][manifests.MANAGED_BY] = "Helm"
    assert "`kubectl patch podgroup` lets it start" in gangs.why_it_waits(waits, workloads)


@pytest.mark.parametrize(
    ("settings", "kind"), [({"gang": True}, "PodGroup"), ({"queue": "gold"}, "Kueue"), ({}, "")], ids=str
)
def test_who_starts_the_tasks_together(settings: dict[str, Any], kind: str) -> None:
    workloads = [item for item in render.objects(cluster(**settings), "ns") if manifests.has_tasks(item)]
    assert gangs.kind(workloads, "demo") == kind
