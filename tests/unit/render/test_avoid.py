"""Nodes that a cluster avoids."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
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


NAMES = st.lists(st.sampled_from(["a", "b", "c.example", "d-1"]), min_size=1, max_size=3, unique=True)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "preferredDuringSchedulingIgnoredDuringExecution": st.just([{"weight": 1, "preference": {}}]),
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries({
            "nodeSelectorTerms": st.lists(
                st.sampled_from([
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]},
                ]),
                min_size=1, max_size=2,
            )
        }),
    },
)  # fmt: skip
AFFINITIES = st.fixed_dictionaries(
    {}, optional={"nodeAffinity": RULES.filter(bool), "podAntiAffinity": st.just({"x": 1})}
)
TEMPLATES = st.builds(
    lambda affinity, annotations: {
        "metadata": {"labels": {}, **({"annotations": annotations} if annotations else {})},
        "spec": {"containers": [], **({"affinity": affinity} if affinity else {})},
    },
    AFFINITIES,
    st.dictionaries(st.just("team"), st.just("a")),
)


@given(TEMPLATES, NAMES)
def test_a_template_avoids_nodes_for_one_start(template: Object, nodes: list[str]) -> None:
    before = copy.deepcopy(template)
    made = placement.away_from(template, nodes)
    assert {*placement.avoided(template["spec"]), *nodes} == {*placement.avoided(made["spec"])}
    rule = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    added = {*placement.avoided_once(made)}
    assert added == {*nodes} - {*placement.avoided(template["spec"])}
    for term in rule["nodeSelectorTerms"]:  # a node that matches any of them may hold the pod
        assert added <= {name for field in term.get("matchFields", ()) for name in field["values"]}
    assert placement.anywhere(made) == before == template
    assert placement.anywhere(template) == template
