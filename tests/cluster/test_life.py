"""Clusters on Kubernetes: promises beyond those of every backend."""

import dataclasses
import subprocess

import pytest
from on_cluster import devices, left, make_job, make_job_file

from tfk8s import __version__, polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.plan import Action, Scaling
from tfk8s.core.spec import Task
from tfk8s.errors import InvalidInput, NoSuchCluster
from tfk8s.render import package_files

KINDS = ("NetworkPolicy", "ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget")


SHOW = "import os, tfk8s; print(tfk8s.__version__, os.path.dirname(tfk8s.__file__))"


class Crash(BaseException):
    """The end of the process."""


def writes(monkeypatch, crash_after=None):
    """Record the writes, and crash after one of them."""
    done = []
    original_send, original_delete_all = Client.send, Client.delete_all

    def note(method, path):
        done.append((method, path))
        if len(done) == crash_after:
            raise Crash

    def send(self, method, *arguments, **options):
        answer = original_send(self, method, *arguments, **options)
        if method != "GET":
            note(method, arguments[0])
        return answer

    def delete_all(self, path, query):
        original_delete_all(self, path, query)
        note("DELETE", path)

    monkeypatch.setattr(Client, "send", send)
    monkeypatch.setattr(Client, "delete_all", delete_all)
    return done


def objects(client, namespace, name):
    """Return all objects of a cluster, without the fields that differ between two equal clusters."""
    found = {}
    for kind in KINDS:
        for one in client.get(paths.collection(kind, namespace), paths.of_cluster(name))["items"]:
            metadata = {key: one["metadata"].get(key) for key in ("name", "labels", "annotations")}
            spec = {key: value for key, value in one.get("spec", {}).items() if key not in ("clusterIP", "clusterIPs")}
            found[kind, metadata["name"]] = (metadata, spec, one.get("binaryData"))
    return found


def test_a_second_up_changes_nothing(cluster, backend, client, namespace):
    before = objects(client, namespace, cluster)
    assert backend.apply(make_job_file(cluster)) is False
    assert objects(client, namespace, cluster) == before


@pytest.mark.usefixtures("unseen_nodes")
def test_up_completes_an_up_that_crashed_after_any_write(up, backend, client, namespace, monkeypatch):
    wanted = make_job_file("crashed", make_job(node_selector={"no": "node"}))
    up(wanted, wait=0)
    expected = objects(client, namespace, "crashed")
    for call in range(1, len(expected) + 1):
        backend.delete("crashed")
        with monkeypatch.context() as patched:
            writes(patched, crash_after=call)
            with pytest.raises(Crash):
                backend.apply(wanted)
        backend.apply(wanted)
        assert objects(client, namespace, "crashed") == expected
        assert backend.apply(wanted) is False


@pytest.mark.usefixtures("unseen_nodes")
def test_down_completes_a_down_that_crashed_after_any_write(up, backend, client, namespace, monkeypatch):
    wanted = make_job_file("fallen", make_job(node_selector={"no": "node"}))
    for call in range(1, 8):
        up(wanted, wait=0)
        with monkeypatch.context() as patched:
            writes(patched, crash_after=call)
            with pytest.raises(Crash):
                backend.delete("fallen")
        if left(client, namespace, "fallen"):
            backend.delete("fallen")
        assert left(client, namespace, "fallen") == []


def test_down_removes_one_cluster(up, backend, client, namespace):
    up(make_job_file("first"))
    up(make_job_file("second", make_job()), wait=0)
    backend.delete("first")
    assert left(client, namespace, "first") == []
    assert len(objects(client, namespace, "second")) == 6


def test_the_help_names_the_namespace_of_the_cluster(cluster, namespace):
    with pytest.raises(NoSuchCluster) as caught:
        KubernetesBackend(namespace="kube-public").observe(cluster)
    assert caught.value.help == f"it is in namespace {namespace}: add --namespace {namespace}"


@pytest.mark.usefixtures("unseen_nodes")
def test_up_refuses_an_object_of_another_cluster(up, backend, client, namespace):
    up(make_job_file("meet", make_job(node_selector={"no": "node"})), wait=0)
    before = objects(client, namespace, "meet")
    with pytest.raises(InvalidInput, match=r'Service "meet-master" exists already and belongs to cluster "meet"'):
        backend.apply(make_job_file("meet-master"))
    assert left(client, namespace, "meet-master") == []
    assert objects(client, namespace, "meet") == before


@pytest.mark.usefixtures("unseen_nodes")
def test_up_refuses_a_cluster_whose_name_is_an_object_of_its_own(up, backend, client, namespace):
    up(make_job_file("join-master", make_job(node_selector={"no": "node"})), wait=0)
    with pytest.raises(InvalidInput, match=r'"join-master" exists already and belongs to cluster "join-master"'):
        backend.apply(make_job_file("join"))
    assert left(client, namespace, "join") == []


@pytest.mark.usefixtures("unseen_nodes")
def test_clusters_of_all_namespaces_are_listed(cluster, make_namespace, namespace):
    other = make_namespace()
    elsewhere = KubernetesBackend(namespace=other)
    elsewhere.apply(make_job_file("elsewhere", make_job(node_selector={"no": "node"})))
    found = {one.name: one.location for one in KubernetesBackend().clusters()}
    assert found["elsewhere"].endswith(f"namespace {other}")
    assert found[cluster].endswith(f"namespace {namespace}")
    assert [one.name for one in elsewhere.clusters()] == ["elsewhere"]
    elsewhere.delete("elsewhere")


def with_events(backend, name, *wanted):
    """Return the events of a cluster as soon as these are among them: nodes post events after they start pods."""

    def look():
        told = list(backend.events(name, follow=False))
        return told if set(wanted) <= {(event.about, event.reason) for event in told} else None

    return polling.wait_until(look, f"the events {wanted}", 60)


def test_events_are_in_order_and_followed_to_the_end(up, backend):
    job_file = make_job_file("eventful", make_job(tasks=2))
    name = up(job_file)
    told = with_events(
        backend, name, ("worker/0", "Scheduled"), ("worker/1", "Started"),
        ("StatefulSet eventful-worker", "SuccessfulCreate"),
    )  # fmt: skip
    assert [event.time for event in told] == sorted(event.time for event in told)
    following = backend.events(name, follow=True)
    next(following)
    backend.restart(name, Task("worker", 1))
    assert ("worker/1", "Started") in ((event.about, event.reason) for event in following)
    backend.delete(name)
    list(following)
    up(job_file)  # the events of this cluster alone
    again = with_events(backend, name, ("worker/0", "Scheduled"))
    assert not {event.id for event in again} & {event.id for event in told}
    assert not [event for event in (*told, *again) if "Startup probe" in event.message]


def test_up_refuses_an_object_that_tfk8s_did_not_make(backend, client, namespace):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "foreign"}, "data": {"a": "b"}}
    client.send("POST", paths.collection("ConfigMap", namespace), body=body)
    with pytest.raises(InvalidInput, match=r'ConfigMap "foreign" exists already and belongs to somebody else'):
        backend.apply(make_job_file("foreign"))
    assert client.get(paths.path(body, namespace))["data"] == {"a": "b"}
    assert left(client, namespace, "foreign") == []


def test_the_third_restart_of_a_task_replaces_its_pod(up, backend, client, namespace):
    name, one = up(make_job_file("restarted", make_job(tasks=2))), Task("worker", 1)

    def restart():
        before = by_task(backend, name)
        backend.restart(name, one)
        wait_until_ready(backend, name, 120, before={one: before[one]})
        after = by_task(backend, name)
        assert after[Task("worker", 0)] == before[Task("worker", 0)]
        assert after[one].since > before[one].since
        return client.get(paths.pod(namespace, f"{name}-worker-1"))["metadata"]["uid"], after[one].restarts

    (first, again), (second, twice), (third, never) = restart(), restart(), restart()
    assert first == second != third
    assert (again, twice, never) == (1, 2, 0)


def test_another_tfk8s_restarts_no_task_and_comes_with_the_restart_of_a_container(
    up, backend, client, namespace, monkeypatch
):
    """Kubelet mounts a zip into the new container of the same pod: the changed one, once kubelet has read it."""
    job_file, one = make_job_file("renewed"), Task("worker", 0)
    name = up(job_file)
    pod = paths.pod(namespace, f"{name}-worker-0")
    uid, before = client.get(pod)["metadata"]["uid"], by_task(backend, name)
    files = {**package_files.of_tasks(), "version.py": '__version__ = "9.9.9"\n'}
    monkeypatch.setattr(package_files, "zip_of_tasks", lambda: package_files.pack(files))
    plan = backend.plan(job_file)
    assert (changed(plan), plan.restarts) == ([("change", "ConfigMap", name)], ())
    backend.apply(job_file)
    assert by_task(backend, name) == before
    backend.restart(name, one)
    wait_until_ready(backend, name, 60, before={one: before[one]})
    assert client.get(pod)["metadata"]["uid"] == uid
    command = ["kubectl", "exec", "--namespace", namespace, f"{name}-worker-0", "--", "python3", "-c", SHOW]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown in (f"{__version__} /opt/tfk8s/tfk8s.zip/tfk8s\n", "9.9.9 /opt/tfk8s/tfk8s.zip/tfk8s\n")


def by_task(backend, name):
    return {task.task: task for task in backend.observe(name).tasks}


def changed(plan):
    return [(change.action, change.kind, change.name) for change in plan.changes]


def test_up_does_what_plan_shows(up, backend, client, namespace):
    first, second = make_job_file("planned", make_job(tasks=2), make_job("ps")), make_job_file("planned", make_job())
    made = backend.plan(first)
    assert {change.action for change in made.changes} == {Action.CREATE}
    assert left(client, namespace, "planned") == []
    name = up(first)
    before = backend.observe(name)
    plan = backend.plan(second)
    assert changed(plan) == [
        ("change", "StatefulSet", "planned-worker"),
        ("remove", "StatefulSet", "planned-ps"),
        ("remove", "PodDisruptionBudget", "planned-ps"),
    ]
    paths_of_fields = [field.path for field in plan.changes[0].fields]
    assert "spec.replicas" in paths_of_fields
    assert plan.restarts == ()
    assert backend.observe(name) == before
    up(second)
    after = backend.observe(name)
    assert [str(task.task) for task in after.tasks] == ["worker/0"]
    assert after.tasks[0].since == before.tasks[0].since
    assert len(devices(backend, name)) == 1
    polling.wait_until(lambda: not [one for one in left(client, namespace, name) if "-ps" in one], "ps to go", 120)


def test_up_waits_for_tasks_whose_pods_change(up, backend):
    first = make_job_file("anew", make_job(tasks=2), make_job("ps"))
    name = up(first)
    before = {task.task: task.since for task in backend.observe(name).tasks}
    other = dataclasses.replace(first, jobs=(make_job(tasks=2, env={"A": "1"}), make_job("ps")))
    assert backend.plan(other).restarts == (Task("worker", 0), Task("worker", 1))
    up(other)
    after = {task.task: task.since for task in backend.observe(name).tasks}
    assert {task for task in after if after[task] != before[task]} == {Task("worker", 0), Task("worker", 1)}


def test_scale_writes_what_up_would(up, backend, client, namespace, monkeypatch):
    jobs = make_job(), make_job("ps")
    name = up(make_job_file("scaled", *jobs))
    before = {task.task: task.since for task in backend.observe(name).tasks}
    done = writes(monkeypatch)
    assert backend.scale(name, {"ps": 1}) is Scaling.UNCHANGED
    assert done == []
    assert backend.scale(name, {"worker": 2}) is Scaling.IN_PLACE
    assert [method for method, _ in done] == ["PATCH"]
    after = {task.task: task.since for task in wait_until_ready(backend, name, 120).tasks}
    assert {task: after[task] for task in before} == before
    assert [str(task.task) for task in backend.observe(name).tasks] == ["worker/0", "worker/1", "ps/0"]
    assert len(devices(backend, name)) == 3
    assert not backend.plan(make_job_file("scaled", make_job(tasks=2), make_job("ps")))
    back = backend.plan(make_job_file("scaled", *jobs))
    assert changed(back) == [("change", "StatefulSet", "scaled-worker")]
    assert backend.apply(make_job_file("scaled", *jobs)) is True
    assert not backend.plan(make_job_file("scaled", *jobs))
    backend.delete(name)
    assert left(client, namespace, name) == []


def test_labels_of_objects_change_without_a_restart(up, backend, client, namespace):
    first = make_job_file("labelled", make_job())
    name = up(first)
    path = f"{paths.collection('StatefulSet', namespace)}/{name}-worker"
    before, tasks = client.get(path)["metadata"], backend.observe(name).tasks
    assert backend.apply(dataclasses.replace(first, ttl=60)) is True
    after = client.get(path)["metadata"]
    assert after["annotations"] != before["annotations"]
    assert after["generation"] == before["generation"], "nothing that its pods are made from has changed"
    assert backend.observe(name).tasks == tasks
