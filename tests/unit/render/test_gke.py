"""The job files of docs/gke.md, as pods, and the nodes that GKE documents: which pod fits which node."""

import re
from pathlib import Path

import pytest

from tfk8s import render
from tfk8s.jobfile.loader import load
from tfk8s.render import script_job

PAGE = Path(__file__).parents[3] / "docs" / "gke.md"
JOB_FILES = dict(re.findall(r"```yaml\n# ([a-z0-9]+)\.yaml.*?\n(.*?)```", PAGE.read_text(), re.DOTALL))

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
SPOT_TAINT = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}
QUEUED_TAINT = {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NoSchedule"}
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
SHARED = {
    "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
    "cloud.google.com/gke-max-shared-clients-per-gpu": "3",
}

# The labels and taints of nodes, as the sources that the page lists document them.
NODES = {
    "plain": ({}, []),
    "spot": ({"cloud.google.com/gke-spot": "true"}, [SPOT_TAINT]),
    "l4": (L4, [GPU_TAINT]),
    "l4-spot": ({**L4, "cloud.google.com/gke-spot": "true"}, [GPU_TAINT, SPOT_TAINT]),
    "l4-shared": ({**L4, **SHARED}, [GPU_TAINT]),
    "l4-queued": (L4, [GPU_TAINT, QUEUED_TAINT]),
    "t4": ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, [GPU_TAINT]),
    "performance": ({"cloud.google.com/compute-class": "Performance"}, []),
}


@pytest.fixture
def pods(tmp_path):
    """Gives the pod spec of a job of one of the page's job files, and of a script beside it."""

    def make(name):
        path = tmp_path / f"{name}.yaml"
        path.write_text(JOB_FILES[name])
        sets = [made for made in render.objects(load(path)) if made["kind"] == "StatefulSet"]
        found = {made["metadata"]["name"].removeprefix(f"{name}-"): made["spec"]["template"] for made in sets}
        found["script"] = script_job.job("script", sets[0], script_job.Run(arguments=[], environment={}))["spec"][
            "template"
        ]
        return found

    return make


def tolerates(toleration, taint):
    return (
        toleration["key"] == taint["key"]
        and toleration.get("effect") in (None, taint["effect"])
        and (toleration.get("operator") == "Exists" or toleration.get("value") == taint["value"])
    )


def fitting(template):
    """Return the nodes that the scheduler would take for a pod, but for its resources."""
    spec = template["spec"]
    return {
        name
        for name, (labels, taints) in NODES.items()
        if spec.get("nodeSelector", {}).items() <= labels.items()
        and all(any(tolerates(one, taint) for one in spec.get("tolerations", ())) for taint in taints)
    }


def gpus(template):
    return template["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu")


def test_the_page_has_these_job_files():
    assert sorted(JOB_FILES) == ["class", "data", "dws", "l4", "shared"]


def test_workers_run_on_spot_nodes_with_an_l4_and_the_chief_on_plain_ones(pods):
    made = pods("l4")
    assert fitting(made["worker"]) == {"l4-spot"}
    assert gpus(made["worker"]) == "1"
    assert fitting(made["chief"]) == fitting(made["script"]) == {"plain", "performance"}
    assert gpus(made["chief"]) is None


def test_a_shared_gpu(pods):
    made = pods("shared")
    assert fitting(made["worker"]) == {"l4-shared"}
    assert gpus(made["worker"]) == "1"


def test_a_script_asks_for_no_gpu_and_for_no_node_that_has_one(pods):
    script = pods("shared")["script"]
    assert gpus(script) is None
    assert "plain" in fitting(script)


def test_a_compute_class(pods):
    assert fitting(pods("class")["worker"]) == {"performance"}


def test_queued_capacity(pods):
    worker = pods("dws")["worker"]
    assert fitting(worker) == {"l4", "l4-queued", "l4-shared"}
    assert worker["metadata"]["annotations"] == {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "7200"}


def test_workload_identity(pods, tmp_path):
    made = pods("data")
    for pod in (made["worker"]["spec"], made["script"]["spec"]):
        assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("trainer", False)
    path = tmp_path / "data.yaml"
    (policy,) = [one for one in render.objects(load(path)) if one["kind"] == "NetworkPolicy"]
    metadata = {"ipBlock": {"cidr": "169.254.169.254/32"}}
    assert [rule["ports"] for rule in policy["spec"]["egress"] if rule["to"] == [metadata]] == [
        [{"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 8080}]
    ]


def test_names_are_found_with_each_of_gkes_three_kinds_of_dns(pods, tmp_path):
    pods("l4")
    (policy,) = [one for one in render.objects(load(tmp_path / "l4.yaml")) if one["kind"] == "NetworkPolicy"]
    (dns,) = [rule for rule in policy["spec"]["egress"] if {"protocol": "UDP", "port": 53} in rule["ports"]]
    assert dns["to"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
        {"ipBlock": {"cidr": "169.254.20.10/32"}},
        {"ipBlock": {"cidr": "169.254.169.254/32"}},
    ]
