"""Nodes that a cluster avoids."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from job_files import EVERYTHING, PROGRAMS

from tfk8s import render
from tfk8s.core.script import ScriptResources
from tfk8s.jobfile.loader import loads
from tfk8s.render import placement, script_job, warm_job
from tfk8s.render.pods import Object

PROGRAMS_THAT_AVOID = PROGRAMS.replace("queue: gold\n", "avoid: [a, b]\n")


def pods(text: str) -> Iterator[Object]:
    """Yield the spec of each pod of a cluster, of its scripts and of its warm pod."""
    workloads = [item for item in render.objects(loads(text, "job.yaml")) if item["kind"] in ("StatefulSet", "Job")]
    for item in workloads:
        item["metadata"].setdefault("uid", "1")
    run = script_job.PodSettings(arguments=[], environment={}, resources=ScriptResources())
    made = [script_job.job("s", workloads[0], run)]
    if workloads[0]["kind"] == "StatefulSet":
        made.append(warm_job.job("w", workloads[0], None, ScriptResources()))
    yield from (item["spec"]["template"]["spec"] for item in (*workloads, *made))


@pytest.mark.parametrize(
    ("text", "nodes"),
    [(EVERYTHING, ["gpu-node-7", "gpu-node-8.example"]), (PROGRAMS_THAT_AVOID, ["a", "b"]), (PROGRAMS, [])],
    ids=["servers", "programs", "none"],
)
def test_every_pod_avoids_the_nodes(text: str, nodes: list[str]) -> None:
    found = list(pods(text))
    assert len(found) >= 6
    assert [placement.avoided(pod) for pod in found] == [nodes] * len(found)


def test_a_name_has_a_requirement_of_its_own() -> None:
    """The API server refuses several names in one requirement (k8s.io/api/core/v1, NodeSelectorTerm.matchFields)."""
    for pod in pods(PROGRAMS_THAT_AVOID):
        (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert [len(field["values"]) for field in term["matchFields"]] == [1, 1]
