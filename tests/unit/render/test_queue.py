"""Clusters in a queue of Kueue: no pod requests storage that nobody named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from job_files import EVERYTHING, PROGRAMS

from tfk8s import render
from tfk8s.core.script import ScriptResources, parse_resources
from tfk8s.jobfile.loader import loads
from tfk8s.render import script_job, warm_job
from tfk8s.render.pods import STORAGE, Object

# What the job file names stays, here for an additional container and for scripts.
NAMED = {"proxy"}


def pods(text: str, resources: ScriptResources) -> Iterator[tuple[str, Object]]:
    """Yield the name and the resources of each container of a cluster, of its scripts and of its warm pod."""
    workloads = [item for item in render.objects(loads(text, "job.yaml")) if item["kind"] in ("StatefulSet", "Job")]
    for item in workloads:
        item["metadata"].setdefault("uid", "1")
    run = script_job.PodSettings(arguments=[], environment={}, resources=resources)
    made = [script_job.job("s", workloads[0], run)]
    if workloads[0]["kind"] == "StatefulSet":
        made.append(warm_job.job("w", workloads[0], None, resources))
    for item in (*workloads, *made):
        spec = item["spec"]["template"]["spec"]
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            yield container["name"], container.get("resources", {})


@pytest.mark.parametrize("text", [EVERYTHING, PROGRAMS], ids=["servers", "programs"])
def test_storage_is_left_out_in_a_queue_alone(text: str) -> None:
    for queue in (True, False):
        found = list(pods(text if queue else text.replace("queue: gold\n", ""), ScriptResources()))
        assert {"server", "script", "lifetime"} <= {name for name, _ in found}
        for name, resources in found:
            has = {kind for kind in ("requests", "limits") if STORAGE in resources.get(kind, {})}
            assert has == ({"requests", "limits"} if name in NAMED or not queue else set()), name
            assert {} not in resources.values()


def test_storage_that_is_named_stays_in_a_queue() -> None:
    for name, resources in pods(EVERYTHING, parse_resources("ephemeral_storage=20Gi")):
        if name == "script":
            assert resources["requests"][STORAGE] == resources["limits"][STORAGE] == "20Gi"
    patch = "jobs: {a: {pod: {containers: [{name: server, resources: {requests: {ephemeral-storage: 1Gi}}}]}}}\n"
    text = f"apiVersion: tfk8s.dev/v1\nname: demo\nimage: tf:1\nqueue: gold\n{patch}"
    (_, resources), *_ = pods(text, ScriptResources())
    assert resources["requests"][STORAGE] == "1Gi"


def templates(text: str) -> dict[str, Object]:
    """Return the metadata of each job's pods, and of the pods of the limits, a script and a warm pod."""
    workloads = [item for item in render.objects(loads(text, "job.yaml")) if item["kind"] in ("StatefulSet", "Job")]
    workloads[0]["metadata"]["uid"] = "1"
    script = script_job.job("s", workloads[0], script_job.PodSettings(arguments=[], environment={}))
    return {item["metadata"]["name"]: item for item in (*workloads, script)}


@pytest.mark.parametrize(
    ("jobs", "serving"),
    [
        ("{ps: 2, worker: 3}", "true"),
        ("{ps: 2, worker: {tasks: 3, program: [a]}}", "true"),
        ("{chief: {program: [a]}, worker: {tasks: 4, program: [a]}}", None),
    ],
)
def test_all_tasks_are_one_group(jobs: str, serving: str | None) -> None:
    found = templates(f"apiVersion: tfk8s.dev/v1\nname: demo\nimage: tf:1\nqueue: gold\nidle: 1h\njobs: {jobs}\n")
    script = found.pop("s")
    (keeper,) = [found.pop(name) for name in list(found) if "lifetime" in name]
    assert len(found) == 2
    for name, item in found.items():
        metadata = item["spec"]["template"]["metadata"]
        of_kueue = {
            key: value for key, value in {**metadata["labels"], **metadata["annotations"]}.items() if "/" in key
        }
        assert {key[15:]: value for key, value in of_kueue.items() if key.startswith("kueue.x-k8s.io/")} == {
            "queue-name": "gold", "pod-group-name": "demo", "managed": "true", "pod-group-total-count": "5",
            "role-hash": name.removeprefix("demo-"), "pod-suspending-parent": "tfk8s",
            **({"pod-group-serving": serving} if serving else {}),
        }  # fmt: skip
        assert "kueue" not in str(item["metadata"])
    assert "kueue" not in str(keeper)
    assert script["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gold"
    assert "kueue" not in str(script["spec"])


def test_a_program_that_kueue_takes_away_has_not_failed() -> None:
    text = "apiVersion: tfk8s.dev/v1\nname: demo\nimage: tf:1\njobs: {worker: {program: [a]}}\n"
    for queue, expected in (("queue: gold\n", ["DisruptionTarget", "TerminationTarget"]), ("", ["DisruptionTarget"])):
        rules = templates(text + queue)["demo-worker"]["spec"]["podFailurePolicy"]["rules"]
        ignored = [rule["onPodConditions"] for rule in rules if rule["action"] == "Ignore"]
        assert ignored == [[{"type": kind, "status": "True"}] for kind in expected]
