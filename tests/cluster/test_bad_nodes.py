"""Starts away from a node that may be at fault, where a second node is simulated: its pods run nothing."""

import logging
import secrets

import pytest
from kube_api import MERGE
from on_cluster import make_job, make_job_file

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.programs import Program
from tfk8s.core.spec import Task

TAINT = {"key": "tfk8s.dev/simulated", "effect": "NoSchedule"}
ANYWHERE = {"tolerations": ({"key": TAINT["key"], "operator": "Exists"},)}
INDEX = ("apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index")


@pytest.fixture
def add_node(client, namespace):
    """Adds a simulated node, which other tests' pods do not tolerate; returns the name."""
    name = f"simulated-{secrets.token_hex(3)}"
    path = f"{paths.NODES}/{name}"

    def add():
        amounts = {"cpu": "32", "memory": "64Gi", "pods": "100", "ephemeral-storage": "100Gi"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": [TAINT]}}
        client.send("POST", paths.NODES, body=body)
        ready = {"type": "Ready", "status": "True", "reason": "Simulated", "message": ""}
        status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}
        client.send("PATCH", f"{path}/status", body=status, content_type=MERGE)

        def is_ready():
            return [taint["key"] for taint in client.get(path)["spec"]["taints"]] == [TAINT["key"]]

        polling.wait_until(is_ready, "the simulated node", 60)
        return name

    yield add
    for pod in client.get(paths.collection("Pod", namespace))["items"]:
        if pod["spec"].get("nodeName") == name:  # no kubelet ends it
            client.send("DELETE", paths.pod(namespace, pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
    client.send("DELETE", path)


@pytest.fixture
def pods(client, namespace):
    """Returns the living pods of a cluster's two tasks, in their order."""

    def pods(name):
        items = client.get(paths.collection("Pod", namespace), paths.of_cluster(name))["items"]
        living = [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]
        return sorted(living, key=lambda pod: next(filter(None, map(pod["metadata"]["labels"].get, INDEX))))

    return pods


def test_a_server_starts_away_from_its_node_once(up, add_node, backend, client, namespace, pods, caplog):
    job_file = make_job_file("server-away", make_job(tasks=2, **ANYWHERE))
    name = up(job_file)
    path = paths.path({"kind": "StatefulSet", "metadata": {"name": f"{name}-worker"}}, namespace)
    first, second = pods(name)
    before = client.get(path)["spec"]

    assert backend.shared.note_bad_places(name, [second["metadata"]["name"]])
    (bad,) = backend.observe(name).bad_nodes
    assert (bad.task, bad.node) == (Task("worker", 1), second["spec"]["nodeName"])
    with caplog.at_level(logging.WARNING):
        backend.restart(name, Task("worker", 1))
    assert "worker/1 starts away from node" in caplog.text
    assert "no other node takes it now" in caplog.text  # there is only one
    wait_until_ready(backend, name, 120)
    same, again = pods(name)
    assert same["metadata"]["uid"] == first["metadata"]["uid"]
    assert again["metadata"]["uid"] != second["metadata"]["uid"]
    assert (client.get(path)["spec"], backend.plan(job_file).changes) == (before, ())

    other = add_node()
    assert backend.shared.note_bad_places(name, [again["metadata"]["name"]])
    backend.restart(name, Task("worker", 1))
    same, away = pods(name)
    assert same["metadata"]["uid"] == first["metadata"]["uid"]
    assert away["spec"]["nodeName"] == other
    assert (client.get(path)["spec"], backend.plan(job_file).changes) == (before, ())
    assert backend.observe(name).bad_nodes == []


def test_programs_start_away_from_a_node_once(up, add_node, backend, client, namespace, pods):
    job_file = make_job_file("program-away", make_job(tasks=2, program=Program(("sleep", "1000")), **ANYWHERE))
    name = up(job_file)
    before = pods(name)
    other = add_node()
    assert backend.shared.note_bad_places(name, [before[1]["metadata"]["name"]])
    backend.restart(name, None)
    assert [pod["spec"]["nodeName"] for pod in pods(name)] == [other, other]
    assert backend.plan(job_file).changes == ()
    assert not backend.apply(job_file)
    for pod in pods(name):  # no kubelet ends it
        client.send("DELETE", paths.pod(namespace, pod["metadata"]["name"]), {"gracePeriodSeconds": 0})
    backend.restart(name, None)
    template = client.get(paths.path({"kind": "Job", "metadata": {"name": f"{name}-worker"}}, namespace))["spec"]
    assert (
        "affinity" not in template["template"]["spec"] or "nodeAffinity" not in template["template"]["spec"]["affinity"]
    )
