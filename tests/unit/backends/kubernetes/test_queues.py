"""What Kueue says of pods and Jobs that wait, with conditions of a real Kueue 0.19."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods import pod_events, pod_status, queues
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.render.pods import Object

NOT_ADMITTED = 'queue "gold" has not admitted it'
SHORT = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor any, 100m more needed"
UNCOVERED = "couldn't assign flavors to pod set main: resource ephemeral-storage unavailable in ClusterQueue"
PREEMPTED = "Preempted to accommodate a workload due to prioritization in the ClusterQueue"


def condition(kind: str, status: str, message: str, reason: str = "Pending") -> Object:
    return {"type": kind, "status": status, "message": message, "reason": reason}


def said(*conditions: Object, **status: object) -> dict[str, str]:
    owner = {"kind": "StatefulSet", "name": "demo-worker", "uid": "uid-set"}
    workload = {"metadata": {"ownerReferences": [owner]}, "status": {"conditions": [*conditions], **status}}
    client: Any = SimpleNamespace(get=lambda path, query=None: {"items": [workload]})
    return queues.read(client, "team")


def reason(found: dict[str, str]) -> str:
    """Return the reason of a gated pod of the StatefulSet."""
    pod = {
        "metadata": {
            "uid": "uid-pod", "labels": {"kueue.x-k8s.io/queue-name": "gold"}, "ownerReferences": [{"uid": "uid-set"}],
        },
        "spec": {"containers": [], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
    }  # fmt: skip
    assert queues.is_waiting(pod)
    return pod_status.phase_and_reason("worker", pod, pod_events.of(pod, pod_events.group([], "kind", found)))[1]


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([], " yet"),
        ([condition("QuotaReserved", "False", SHORT)], f": {SHORT}"),
        (
            [condition("QuotaReserved", "False", UNCOVERED)],
            (
                f": {UNCOVERED}: take ephemeral-storage out of the job file, or let an administrator add it to the "
                "ClusterQueue"
            ),
        ),
        (
            [condition("QuotaReserved", "False", "LocalQueue gold doesn't exist", "Inadmissible")],
            (
                ": LocalQueue gold doesn't exist: change `queue` to one that `kubectl get localqueues` lists, or let "
                "an administrator create it"
            ),
        ),
        (
            [condition("QuotaReserved", "False", SHORT), condition("Evicted", "True", PREEMPTED, "Preempted")],
            f": {SHORT}; it was evicted (Preempted): {PREEMPTED}",
        ),
    ],
)
def test_a_waiting_pod_has_the_reason_of_its_workload(conditions: list[Object], words: str) -> None:
    assert reason(said(*conditions)) == NOT_ADMITTED + words


def waiting(name: str, created: str, *conditions: Object, kind: str = "Pod", **spec: object) -> Object:
    owner = {"kind": kind, "name": f"demo-{name}", "uid": f"uid-{name}"}
    metadata = {"name": name, "creationTimestamp": created, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"queueName": "gold", **spec}, "status": {"conditions": [*conditions]}}


def test_the_place_in_the_queue_and_who_is_ahead_are_named() -> None:
    late = {**condition("Evicted", "True", "no", "PodsReadyTimeout"), "lastTransitionTime": "9"}
    items = [
        waiting("last", "7"), waiting("evicted", "1", late), waiting("first", "5", priority=100), waiting("a", "2"),
        waiting("job-x", "3", kind="Job"), waiting("other", "1", queueName="silver"), waiting("off", "1", active=False),
        waiting("admitted", "1", condition("Admitted", "True", "")),
        waiting("done", "1", condition("Finished", "True", "")),
        waiting("reserved", "1", condition("QuotaReserved", "True", "")),
    ]  # fmt: skip
    client: Any = SimpleNamespace(get=lambda path, query=None: {"items": items})
    found = queues.read(client, "team")
    assert {key[4:]: text for key, text in found.items() if "place" in text} == {
        "a": "place 2 in the queue, behind first",
        "job-x": "place 3 in the queue, behind first, a",
        "last": "place 4 in the queue, behind first, a, demo-job-x",
        "evicted": "it was evicted (PodsReadyTimeout): no"
        "; place 5 in the queue, behind first, a, demo-job-x and 1 more",
    }


def test_admission_checks_are_named() -> None:
    checks = [{"name": "dws", "state": "Pending", "message": "no capacity"}, {"name": "other", "state": "Ready"}]
    found = said(condition("QuotaReserved", "True", "Quota reserved"), admissionChecks=checks)
    words = "its quota is reserved, and it waits for admission checks; dws is Pending: no capacity"
    assert reason(found) == f"{NOT_ADMITTED}: {words}"


def test_a_program_whose_job_kueue_manages_has_to_leave_its_queue() -> None:
    """Kueue labels the pods of a Job that it has admitted, here for the queue `default`."""
    file = job_file("demo", Job(name="worker", program=Program(("train",))), image="tf:1", queue="gold")
    (job,) = (item for item in render.objects(file, "ns") if item["kind"] == "Job")
    words = "runs no program of a cluster in a queue then: take `queue` out of the job file"
    assert queues.waits({**job, "spec": {**job["spec"], "suspend": True}}, "").endswith(words)
    labels = job["spec"]["template"]["metadata"]["labels"]
    pod = {"metadata": {"labels": labels}, "spec": {}}
    assert queues.waits(pod, "") == f"{NOT_ADMITTED} yet"
    labels["kueue.x-k8s.io/local-queue-name"] = "gold"
    assert queues.waits(pod, "") == f"{NOT_ADMITTED} yet"
    labels["kueue.x-k8s.io/local-queue-name"] = "default"
    assert queues.waits(pod, "").endswith(words)


def test_an_admitted_workload_has_no_reason() -> None:
    assert said(condition("QuotaReserved", "True", "x"), condition("Admitted", "True", "x")) == {}


@pytest.mark.parametrize(
    ("code", "note"),
    [
        (403, "with the right to list workloads.kueue.x-k8s.io"),
        (404, "this Kueue has no Workloads of kueue.x-k8s.io"),
    ],
)
def test_workloads_that_can_not_be_read_are_a_note(code: int, note: str) -> None:
    def refuse(path: str, query: object = None) -> Object:
        raise ApiError(code, "workloads.kueue.x-k8s.io")

    client: Any = SimpleNamespace(get=refuse)
    assert note in reason(queues.read(client, "team"))
