"""Clusters that are too large for the nodes, or for what is free on them."""

import logging

import pytest

from tfk8s import render
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.nodes import cluster_fit
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
CLUSTER_AUTOSCALER = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
KARPENTER = "/apis/karpenter.sh"

TOO_MANY = "the tasks of job worker request 16 nvidia.com/gpu in sum, and the 2 nodes for them have 8 nvidia.com/gpu"
LITTLE_FREE = "the tasks of job worker request 2 cpu in sum, and the only node for them has 1150m cpu free"
WAIT = ": tasks wait until nodes are added or pods end"


def node(name="a", provider="kind://podman/test/a", taints=(), **allocatable):
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {"providerID": provider, "taints": list(taints)},
        "status": {"allocatable": {"cpu": "2", "memory": "8Gi", **allocatable}},
    }


def pod(cpu, namespace="kube-system", phase="Running", **labels):
    return {
        "metadata": {"namespace": namespace, "labels": {f"app.kubernetes.io/{key}": labels[key] for key in labels}},
        "spec": {"nodeName": "a", "containers": [{"resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }


class FakeClient:
    """An API server with nodes and pods. What is None may not be read."""

    def __init__(self, nodes, pods=(), **found):
        self.lists, self.found, self.asked = {NODES: nodes, PODS: pods}, found, []

    def get(self, path, query):
        self.asked.append(path)
        if self.lists[path] is None:
            raise ApiError(403, "forbidden")
        return {"items": list(self.lists[path]), "metadata": {}}

    def find(self, path):
        self.asked.append(path)
        answer = self.found.get({CLUSTER_AUTOSCALER: "autoscaler", KARPENTER: "karpenter"}[path], False)
        if answer is None:
            raise ApiError(403, "forbidden")
        return {} if answer else None


def cluster(queue=None, **settings):
    worker = Job(**{"name": "worker", "tasks": 2, "cpu": Quantity.parse("1"), **settings})
    return JobFile(name="mnist", image="tf:1", jobs=(worker,), master="worker", queue=queue)


def room_for(job_file):
    return "ml", job_file, render.objects(job_file, "ml")


def find_room(client, **settings):
    found = cluster_fit.find_room(client, *room_for(cluster(**settings)))
    return found.shortage, found.is_final


GPU_NODES = [node("a", **{"nvidia.com/gpu": "4"}), node("b", **{"nvidia.com/gpu": "4"})]
CLOUD_NODES = [node(name, f"gce://{name}", **{"nvidia.com/gpu": "4"}) for name in "ab"]
SIXTEEN_GPUS = {"tasks": 4, "gpus": 4, "cpu": Quantity.parse("100m")}


ROOMS = [
    (FakeClient(GPU_NODES), SIXTEEN_GPUS, f"{TOO_MANY}: lower their tasks or gpus", True),
    (FakeClient(GPU_NODES, autoscaler=None), SIXTEEN_GPUS, f"{TOO_MANY}: lower their tasks or gpus", True),
    (FakeClient(GPU_NODES), {**SIXTEEN_GPUS, "queue": "gold"}, f"{TOO_MANY} now{WAIT}", False),
    (FakeClient(GPU_NODES, autoscaler=True), SIXTEEN_GPUS, "", False),
    (FakeClient(CLOUD_NODES, autoscaler=None), SIXTEEN_GPUS, f"{TOO_MANY} now{WAIT}", False),
    (FakeClient(CLOUD_NODES, autoscaler=True), SIXTEEN_GPUS, "", False),
    (FakeClient(CLOUD_NODES, karpenter=True), SIXTEEN_GPUS, "", False),
    (FakeClient(None), SIXTEEN_GPUS, "", False),
    (FakeClient([node()], [pod("850m")]), {}, f"{LITTLE_FREE}{WAIT}", False),
    (FakeClient([node()], [pod("850m")], karpenter=True), {}, "", False),
    (FakeClient([node()], [pod("850m")]), {"queue": "gold"}, "", False),
    (FakeClient([node()], None), {}, "", False),
]  # fmt: skip


def test_what_the_nodes_lack_and_whether_somebody_adds_it():
    for client, settings, shortage, is_final in ROOMS:
        assert find_room(client, **settings) == (shortage, is_final), client


def test_a_cluster_that_fits_takes_two_requests():
    client = FakeClient([node()])
    assert find_room(client) == ("", False)
    assert client.asked == [NODES, PODS]


def test_own_tasks_are_replaced_and_own_scripts_stay():
    own = {"name": "tfk8s", "instance": "mnist"}
    task, script = ({**own, "component": component} for component in ("worker", "session-script"))
    assert find_room(FakeClient([node()], [pod("1", "ml", **task)])) == ("", False)
    assert find_room(FakeClient([node()], [pod("1", "other", **task)]))[0]
    assert find_room(FakeClient([node()], [pod("1", "ml", **script)]))[0]


def test_cordoned_nodes_have_nothing_free():
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    shortage, is_final = find_room(FakeClient([node(taints=[cordon])]))
    assert shortage.startswith(
        "the tasks of job worker request 2 cpu, 1Gi memory in sum, and the only node for them has 0"
    )
    assert not is_final


def test_a_refusal_creates_nothing_and_a_warning_goes_on(caplog):
    with pytest.raises(InvalidInput) as caught:
        cluster_fit.require_room(FakeClient(GPU_NODES), *room_for(cluster(**SIXTEEN_GPUS)))
    assert str(caught.value) == f"{TOO_MANY}: lower their tasks or gpus"
    assert caught.value.help == "or add such nodes first; nothing was created"
    with caplog.at_level(logging.WARNING, "tfk8s"):
        cluster_fit.require_room(FakeClient([node()], [pod("850m")]), *room_for(cluster()))
    assert caplog.messages == [f"{LITTLE_FREE}{WAIT}"]
