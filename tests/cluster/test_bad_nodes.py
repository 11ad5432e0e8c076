"""Starts away from a node that may be at fault, where a second node is simulated: its pods run nothing."""

import dataclasses
import logging
import secrets
from concurrent.futures import ThreadPoolExecutor

import pytest
from kube_api import MERGE
from on_cluster import make_job, make_job_file

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.workloads import avoidance
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.programs import Program
from tfk8s.core.spec import Task
from tfk8s.render import placement

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
    client.send("DELETE", path)  # before its pods, which would start there again
    for pod in client.get(paths.collection("Pod", namespace))["items"]:
        if pod["spec"].get("nodeName") == name:  # no kubelet ends it
            client.send("DELETE", paths.pod(namespace, pod["metadata"]["name"]), {"gracePeriodSeconds": 0})


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


@pytest.mark.parametrize("avoid", [(), ("elsewhere",)], ids=["", "avoid"])
def test_programs_start_away_from_a_node_once(avoid, up, add_node, backend, client, namespace, pods):
    job = make_job(tasks=2, program=Program(("sleep", "1000")), **ANYWHERE)
    job_file = make_job_file(f"program-away{len(avoid)}", job, avoid=avoid)
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
    path = paths.path({"kind": "Job", "metadata": {"name": f"{name}-worker"}}, namespace)
    assert placement.avoided(client.get(path)["spec"]["template"]["spec"]) == [*avoid]


@pytest.mark.parametrize("program", [None, Program(("sleep", "1000"))], ids=["server", "program"])
def test_up_avoids_for_good_what_a_start_would_avoid_once(program, up, add_node, backend, client, namespace, pods):
    """Such a node is no news for the start, which avoids it by its template."""
    job = make_job(tasks=2, program=program, **ANYWHERE)
    job_file = make_job_file("program-both" if program else "server-both", job)
    name = up(job_file)
    before = pods(name)
    other = add_node()
    assert backend.shared.note_bad_places(name, [before[1]["metadata"]["name"]])
    job_file = dataclasses.replace(job_file, avoid=(before[1]["spec"]["nodeName"],))
    assert backend.apply(job_file)
    polling.wait_until(lambda: [pod["spec"].get("nodeName") for pod in pods(name)] == [other] * 2, "the pods", 60)
    assert not backend.apply(job_file)


def test_up_meanwhile_is_not_undone(up, add_node, backend, client, namespace, pods):
    """Another user changes a variable and the number of tasks while a pod starts away from its node."""
    job_file = make_job_file("meanwhile", make_job(tasks=2, **ANYWHERE))
    name = up(job_file)
    path = paths.path({"kind": "StatefulSet", "metadata": {"name": f"{name}-worker"}}, namespace)
    before = client.get(path)["spec"]
    assert backend.shared.note_bad_places(name, [pods(name)[1]["metadata"]["name"]])  # and no other node is there
    changed = dataclasses.replace(job_file, jobs=(make_job(tasks=3, env={"A": "b"}, **ANYWHERE),))
    with ThreadPoolExecutor() as threads:
        restart = threads.submit(backend.restart, name, Task("worker", 1))
        polling.wait_until(lambda: avoidance.is_open(client.get(path)), "the start away from the node", 60)
        assert backend.apply(changed)
        restart.result(120)
    after = client.get(path)
    assert (after["spec"]["replicas"], after["spec"]["updateStrategy"]) == (3, before["updateStrategy"])
    assert not avoidance.is_open(after)
    assert not backend.plan(changed).changes
    wait_until_ready(backend, name, 120)
    made_of = {pod["metadata"]["labels"]["controller-revision-hash"] for pod in pods(name)}
    assert made_of == {client.get(path)["status"]["updateRevision"]}
    assert all({"name": "A", "value": "b"} in pod["spec"]["containers"][0]["env"] for pod in pods(name))
