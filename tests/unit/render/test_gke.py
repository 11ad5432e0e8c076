"""Tests that pods of the job files in docs/gke.md fit the nodes that GKE documents."""

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

# The labels and taints of nodes, from the sources that the page lists.
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
    """Give the pod templates of the jobs of a job file in the page, and of a script."""

    def make(name):
        path = tmp_path / f"{name}.yaml"
        path.write_text(JOB_FILES[name])
        sets = [item for item in render.objects(load(path)) if item["kind"] == "StatefulSet"]
        sets[0]["metadata"]["uid"] = "1"
        script = script_job.job("script", sets[0], script_job.PodSettings(arguments=[], environment={}))
        return {item["metadata"]["name"].removeprefix(f"{name}-"): item["spec"]["template"] for item in (*sets, script)}

    return make


def tolerates(toleration, taint):
    return (
        toleration["key"] == taint["key"]
        and toleration.get("effect") in (None, taint["effect"])
        and (toleration.get("operator") == "Exists" or toleration.get("value") == taint["value"])
    )


def fitting(template):
    """Return the nodes that fit a pod, without regard to its resources."""
    spec = template["spec"]
    return {
        name
        for name, (labels, taints) in NODES.items()
        if spec.get("nodeSelector", {}).items() <= labels.items()
        and all(any(tolerates(toleration, taint) for toleration in spec.get("tolerations", ())) for taint in taints)
    }


def gpus(template):
    return template["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu")


def test_job_files_of_the_page():
    assert sorted(JOB_FILES) == ["bucket", "class", "data", "dws", "l4", "shared"]


def test_workers_with_an_l4_on_spot_nodes(pods):
    templates = pods("l4")
    assert fitting(templates["worker"]) == {"l4-spot"}
    assert gpus(templates["worker"]) == "1"
    assert fitting(templates["chief"]) == fitting(templates["script"]) == {"plain", "performance"}
    assert gpus(templates["chief"]) is None


def test_shared_gpu(pods):
    templates = pods("shared")
    assert fitting(templates["worker"]) == {"l4-shared"}
    assert gpus(templates["worker"]) == "1"


def test_script_needs_no_gpu_node(pods):
    script = pods("shared")["script"]
    assert gpus(script) is None
    assert "plain" in fitting(script)


def test_compute_class(pods):
    assert fitting(pods("class")["worker"]) == {"performance"}


def test_queued_capacity(pods):
    worker = pods("dws")["worker"]
    assert fitting(worker) == {"l4", "l4-queued", "l4-shared"}
    assert worker["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] == "7200"


def test_workload_identity(pods, tmp_path):
    templates = pods("data")
    for pod in (templates["worker"]["spec"], templates["script"]["spec"]):
        assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("trainer", False)
    path = tmp_path / "data.yaml"
    (policy,) = [item for item in render.objects(load(path)) if item["kind"] == "NetworkPolicy"]
    metadata = {"ipBlock": {"cidr": "169.254.169.254/32"}}
    assert [rule["ports"] for rule in policy["spec"]["egress"] if rule["to"] == [metadata]] == [
        [{"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 8080}]
    ]


def test_policy_allows_the_three_kinds_of_dns_of_gke(pods, tmp_path):
    pods("data")
    (policy,) = [item for item in render.objects(load(tmp_path / "data.yaml")) if item["kind"] == "NetworkPolicy"]
    (dns,) = [rule for rule in policy["spec"]["egress"] if {"protocol": "UDP", "port": 53} in rule["ports"]]
    assert dns["to"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
        {"ipBlock": {"cidr": "169.254.20.10/32"}},
        {"ipBlock": {"cidr": "169.254.169.254/32"}},
    ]


def test_buckets_are_mounted_in_tasks_and_scripts(pods):
    for template in pods("bucket").values():
        assert template["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
        assert template["spec"]["serviceAccountName"] == "trainer"
        models, data = [volume["csi"] for volume in template["spec"]["volumes"] if "csi" in volume]
        assert models["driver"] == "gcsfuse.csi.storage.gke.io"
        assert models["volumeAttributes"]["mountOptions"] == "implicit-dirs,uid=65532,gid=65532,only-dir=mnist"
        assert data["readOnly"] is True
