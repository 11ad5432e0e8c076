"""Tasks that no node can ever hold."""

import pytest

from tfk8s import render
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.nodes import scheduling
from tfk8s.core.job_file.mappings import Topology
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput


def node(*taints, labels=None, provider="kind://podman/test/node", name="node", **amounts):
    allocatable = {"cpu": "2", "memory": "8135656Ki", "ephemeral-storage": "9Gi", "pods": "110", **amounts}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"providerID": provider, "taints": list(taints)},
        "status": {"allocatable": allocatable},
    }


def gpu_node(gpus="2", model="nvidia-l4", **amounts):
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    return node(taint, labels={"cloud.google.com/gke-accelerator": model}, **{"nvidia.com/gpu": gpus, **amounts})


def why_impossible(job, *nodes, pod=None, avoid=()):
    job_file = JobFile(name="a", image="tf:1", jobs=(job,), master=job.name, pod=pod or {}, avoid=avoid)
    objects = render.objects(job_file)
    (stateful_set,) = (item for item in objects if item["kind"] == "StatefulSet")
    return scheduling.why_impossible(
        scheduling.JobFields(job_file, job), stateful_set["spec"]["template"]["spec"], nodes
    )


def amount(text):
    return Quantity.parse(text)


ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "type", "value": "kwok", "effect": "NoSchedule"}
TOLERATIONS = [
    {"key": "type", "operator": "Exists"},
    {"key": "type", "operator": "Equal", "value": "kwok", "effect": "NoSchedule"},
    {"key": "type", "value": "kwok"},
    {"operator": "Exists"},
]


POSSIBLE = [
    (Job(name="worker"), [node()]),
    (Job(name="worker", cpu=amount("2000m"), memory=amount("7Gi")), [node()]),
    (Job(name="worker", gpus=2), [node(), gpu_node()]),
    (Job(name="worker", gpus=1, accelerator="nvidia-l4"), [node(), gpu_node()]),
    (Job(name="worker", gpus=1, gpu_resource="amd.com/gpu"), [node(**{"amd.com/gpu": "1"})]),
    *((Job(name="worker", tolerations=(toleration,)), [node(TAINT)]) for toleration in TOLERATIONS),
    (Job(name="worker"), [node({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"})]),
    (Job(name="worker"), [node({**TAINT, "effect": "PreferNoSchedule"})]),
    (Job(name="worker", topology=Topology(spread="zone")), [node()]),
    (Job(name="worker", topology=Topology(pack="zone")), [node()]),
    (Job(name="worker", topology=Topology(spread="zone", required=True)), [node(), node(labels={ZONE: "a"})]),
]


def test_pods_that_a_node_can_hold():
    for job, nodes in POSSIBLE:
        assert why_impossible(job, *nodes) == "", job


IMPOSSIBLE = [
    (
        Job(name="worker", gpus=4),
        [node(), gpu_node(), gpu_node("1")],
        "it asks for 4 nvidia.com/gpu, and no node has more than 2: lower jobs.worker.gpus",
    ),
    (
        Job(name="ps", gpus=1),
        [node()],
        "it asks for 1 nvidia.com/gpu, and no node has any: lower jobs.ps.gpus",
    ),
    (
        Job(name="worker", memory=amount("9Ti")),
        [node(), node(memory="4Gi")],
        "it asks for 9Ti memory, and no node has more than 7944Mi: lower jobs.worker.memory",
    ),
    (
        Job(name="worker", cpu=amount("2001m")),
        [node()],
        "it asks for 2001m cpu, and no node has more than 2: lower jobs.worker.cpu",
    ),
    (
        Job(name="worker", cpu=amount("4"), memory=amount("6Gi")),
        [node(), node(cpu="8", memory="4Gi")],
        "no node has 4 cpu, 6Gi memory together: lower jobs.worker.cpu or jobs.worker.memory",
    ),
    (
        Job(name="worker", gpus=1, accelerator="nvidia-h100-80gb"),
        [node(), gpu_node()],
        (
            "no node has the label cloud.google.com/gke-accelerator=nvidia-h100-80gb, only "
            "cloud.google.com/gke-accelerator=nvidia-l4: change jobs.worker.accelerator"
        ),
    ),
    (
        Job(name="worker", spot="gke"),
        [node()],
        "no node has the label cloud.google.com/gke-spot=true: change jobs.worker.spot",
    ),
    (
        Job(name="worker", spot="gke"),
        [node(labels={"karpenter.sh/capacity-type": "on-demand"})],
        "no node has the label cloud.google.com/gke-spot=true: change jobs.worker.spot to karpenter",
    ),
    (
        Job(name="worker", spot="eks"),
        [node(labels={"eks.amazonaws.com/capacityType": "ON_DEMAND"})],
        (
            "no node has the label eks.amazonaws.com/capacityType=SPOT, only "
            "eks.amazonaws.com/capacityType=ON_DEMAND: change jobs.worker.spot"
        ),
    ),
    (
        Job(name="worker", node_selector={"a": "1", "b": "1"}),
        [node(labels={"a": "1"}), node(labels={"b": "1"})],
        "no node has all of a=1, b=1: change jobs.worker.node_selector",
    ),
    *(
        (
            Job(name="worker", topology=topology),
            [node(labels={"rack": "1"})],
            f"no node has the label {ZONE}: change jobs.worker.topology",
        )
        for topology in (Topology(spread="zone", required=True), Topology(pack="zone", required=True))
    ),
    (
        Job(name="worker", tolerations=({"key": "type", "value": "other"}, {"key": "x", "operator": "Exists"})),
        [node(TAINT)],
        "every node has a taint that it does not tolerate (type=kwok:NoSchedule): add to jobs.worker.tolerations",
    ),
    (
        Job(name="worker", gpus=1, tolerations=({"operator": "Exists", "effect": "NoExecute"},)),
        [node(), gpu_node("0"), node(TAINT, **{"nvidia.com/gpu": "8"})],
        "it asks for 1 nvidia.com/gpu, and no node has any: lower jobs.worker.gpus",
    ),
]


def test_field_is_named_if_no_node_can_hold_the_pod():
    for job, nodes, words in IMPOSSIBLE:
        assert why_impossible(job, *nodes) == words, job


def test_a_node_that_the_cluster_avoids_holds_nothing():
    for nodes, words in (([node()], "it avoids every node: shorten avoid"), ([node(), node(name="other")], "")):
        assert why_impossible(Job(name="worker"), *nodes, avoid=("node",)) == words
    assert why_impossible(Job(name="worker", gpus=1), gpu_node(), node(name="other"), avoid=("node",)) == (
        "it asks for 1 nvidia.com/gpu, and no node has any: lower jobs.worker.gpus"
    )


def sidecar(**requests):
    return {"containers": [{"name": "proxy", "image": "proxy:1", "resources": {"requests": requests}}]}


ORIGINS = [
    (Job(name="a", shm=amount("900Gi")), {}, "lower jobs.a.shm"),
    (Job(name="a", shm=amount("1Gi"), memory=amount("900Gi")), {}, "lower jobs.a.memory"),
    (Job(name="a", pod=sidecar(cpu=3)), {}, "lower jobs.a.pod"),
    (Job(name="a"), sidecar(cpu=3), "lower pod"),
    (Job(name="a", cpu=amount("3")), sidecar(cpu="50m"), "lower jobs.a.cpu"),
    (Job(name="a"), {"resources": {"requests": {"memory": "900Gi"}}}, "lower pod"),
    (Job(name="a"), {"nodeSelector": {"x": "1"}}, "change pod.nodeSelector"),
    (Job(name="a", pod={"nodeSelector": {"x": "1"}}), {}, "change jobs.a.pod.nodeSelector"),
]


def test_field_that_a_request_or_a_label_comes_from():
    for job, pod, field in ORIGINS:
        assert why_impossible(job, node(), pod=pod).rpartition(": ")[2] == field, job


class NodesClient:
    """An API server that has these nodes. Without nodes, the user may not list them."""

    def __init__(self, *nodes):
        self.nodes = nodes

    def get(self, path, query):
        if not self.nodes:
            raise ApiError(403, "may not list nodes")
        return {"items": list(self.nodes), "metadata": {}}


def test_a_script_that_asks_for_more_gpus_than_a_node_has_is_refused():
    scheduling.require_gpus(NodesClient(node(), gpu_node("2")), "nvidia.com/gpu", 2)
    with pytest.raises(InvalidInput, match=r"(?m)^the script asks for 3 nvidia.com/gpu, and no node has more than 2$"):
        scheduling.require_gpus(NodesClient(node(), gpu_node("2")), "nvidia.com/gpu", 3)
    scheduling.require_gpus(NodesClient(), "nvidia.com/gpu", 3)


def test_clusters_that_may_grow():
    assert scheduling.may_grow([])
    assert not scheduling.may_grow([node(), node(provider="")])
    assert scheduling.may_grow([node(), node(provider="gce://project/zone/node")])
    assert scheduling.may_grow([node(labels={"cloud.google.com/gke-nodepool": "default"})])
