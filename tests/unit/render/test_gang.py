"""A cluster as a gang: a PodGroup, and the field of pods that names the PodGroup."""

from __future__ import annotations

from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.core import lifetime
from tfk8s.core.job_file.gangs import is_possible
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job, JobFile
from tfk8s.render import gang, manifests, other_pods

JOBS = (Job(name="ps"), Job(name="worker", tasks=3, program=Program(("a",))))


def cluster(*jobs: Job, **settings: Any) -> JobFile:
    return job_file("demo", *(jobs or JOBS), image="tf:1", **settings)


def test_pod_group_has_all_tasks_and_comes_before_their_pods() -> None:
    kinds = [item["kind"] for item in render.objects(cluster(gang=True))]
    assert kinds.index("PodGroup") < kinds.index("StatefulSet")
    (group,) = (item for item in render.objects(cluster(gang=True), "ns") if item["kind"] == "PodGroup")
    assert group == {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": "demo",
            "namespace": "ns",
            "labels": {**manifests.selector("demo"), "app.kubernetes.io/managed-by": "tfk8s"},
        },
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
    }


def test_pods_of_servers_and_programs_name_the_pod_group() -> None:
    workloads = [item for item in render.objects(cluster(gang=True)) if manifests.has_tasks(item)]
    assert [item["kind"] for item in workloads] == ["StatefulSet", "Job"]
    for item in workloads:
        assert item["spec"]["template"]["spec"]["schedulingGroup"] == {"podGroupName": "demo"}
        assert gang.is_member(item, "demo")
        assert "schedulingGroup" not in other_pods.spec(item["spec"]["template"]["spec"])


@pytest.mark.parametrize("wish", [None, False])
def test_render_makes_a_gang_only_if_the_job_file_says_so(wish: bool | None) -> None:
    objects = render.objects(cluster(gang=wish))
    assert "PodGroup" not in [item["kind"] for item in objects]
    assert not any(gang.is_member(item, "demo") for item in objects if manifests.has_tasks(item))


@pytest.mark.parametrize("group", [None, "demo", ["demo"], {"podGroupName": 1}, {}])
def test_a_group_of_another_type_is_none(group: object) -> None:
    """The API server may be anybody's."""
    workload = {"spec": {"template": {"spec": {"schedulingGroup": group}}}}
    assert not gang.is_member(workload, "demo")


def test_pod_group_has_the_priority_of_the_pods() -> None:
    """The scheduler starts no gang whose pods have another priority than the PodGroup."""
    jobs = [Job(name=name, priority_class="high") for name in ("ps", "worker")]
    (group,) = (item for item in render.objects(cluster(*jobs, gang=True)) if item["kind"] == "PodGroup")
    assert group["spec"]["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("jobs", "settings", "answer"),
    [
        (JOBS, {}, True),
        ((Job(name="a"), Job(name="b", priority_class="high")), {}, False),
        ((Job(name="a"), Job(name="b", pod={"schedulerName": "mine"})), {}, False),
        ((Job(name="a"), Job(name="b", priority_class="high")), {"pod": {"priorityClassName": "low"}}, True),
        (JOBS, {"pod": {"schedulingGroup": {"podGroupName": "other"}}}, False),
    ],
)
def test_jobs_that_can_be_a_gang(jobs: tuple[Job, ...], settings: dict[str, Any], answer: bool) -> None:
    assert is_possible(cluster(*jobs, **settings)) == answer


def test_the_job_of_the_limits_removes_the_pod_group() -> None:
    objects = {item["kind"]: item for item in render.objects(cluster(gang=True, idle=60))}
    rule = {"apiGroups": ["scheduling.k8s.io"], "resources": ["podgroups"], "resourceNames": ["demo"]}
    assert {**rule, "verbs": ["get", "delete"]} in objects["Role"]["rules"]
    removed = [item.resource for item in lifetime.removable_objects("demo", ["ps"], gang=True)]
    assert "podgroups" in removed
    assert "podgroups" not in [item.resource for item in lifetime.removable_objects("demo", ["ps"])]
