"""Pods of a cluster besides its tasks."""

from __future__ import annotations

import pytest
from job_files import OF_TASKS

from tfk8s import render
from tfk8s.jobfile.loader import loads
from tfk8s.render import script_job
from tfk8s.render.pods import Object


def templates() -> dict[str, Object]:
    """Return the pod templates of the cluster's tasks, of the Job that removes the cluster, and of a script."""
    made = {item["kind"]: item for item in render.objects(loads(OF_TASKS, "job.yaml"))}
    master = made["StatefulSet"]
    master["metadata"]["uid"] = "1"
    script = script_job.job("a", master, script_job.PodSettings(arguments=[], environment={}))
    return {name: item["spec"]["template"] for name, item in
            {"tasks": master, "lifetime": made["Job"], "script": script}.items()}  # fmt: skip


@pytest.mark.parametrize("pod", ["lifetime", "script"])
def test_what_belongs_to_tasks_alone_is_left_out(pod: str) -> None:
    tasks, other = templates()["tasks"], templates()[pod]
    left_out = set(tasks["spec"]) - set(other["spec"]) - {"initContainers"}
    assert left_out == {
        "nodeName", "resources", "resourceClaims", "schedulingGates", "readinessGates", "topologySpreadConstraints",
    }  # fmt: skip
    assert (other["spec"]["affinity"], other["spec"]["dnsPolicy"]) == ({"nodeAffinity": {"a": 1}}, "Default")
    assert "annotations" not in other["metadata"]
    assert not [label for label in other["metadata"]["labels"] if label.startswith("kueue.x-k8s.io/")]


def test_init_containers_of_a_script_have_no_claims_of_tasks() -> None:
    (download,) = templates()["script"]["spec"]["initContainers"]
    assert download["resources"] == {"limits": {"cpu": "1"}}
    assert "initContainers" not in templates()["lifetime"]["spec"]
