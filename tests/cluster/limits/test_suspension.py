"""Suspended clusters in Kubernetes: a program with a claim, and servers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_api import KubeApi
from on_cluster import left, make_job, make_job_file, open_claim, start_tfk8s
from suspended_training import STEPS, TIMES, begins, disturb, weights, write

from tfk8s import polling
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.handle import Cluster
from tfk8s.core.job_file.mappings import IdleLimits
from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import Phase
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import ClusterError, NoSuchCluster

WORKER = Task("worker", 0)


@pytest.fixture
def claim(client: KubeApi, namespace: str) -> Iterator[str]:
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "training"}, "spec": spec}
    client.send("POST", path, body=body)
    open_claim(client, namespace, "training")
    yield "training"
    client.send("DELETE", f"{path}/training")


def training(folder: Path, claim: str, name: str, pause: float) -> JobFile:
    words = (write(folder).name, f"/ckpt/{name}", str(pause))
    job = make_job(memory=Quantity.parse("1Gi"), program=Program(words, str(folder)))
    return make_job_file(name, job, volumes=(Volume(path="/ckpt", claim=claim),), max_duration=3600)


def ends(backend: KubernetesBackend, name: str) -> str:
    assert Cluster(backend, name).wait_for_programs(300).exit_code == 0
    return output(backend, name)


def output(backend: KubernetesBackend, name: str) -> str:
    return "\n".join(line.text for line in backend.logs(name, [WORKER], LogOptions()))


def test_a_training_goes_on_to_the_same_weights(
    up: Callable[[JobFile], str], backend: KubernetesBackend, client: KubeApi, namespace: str, claim: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    up(training(tmp_path, claim, "calm", 0.0))
    calm = ends(backend, "calm")
    name = up(training(tmp_path, claim, "disturbed", 0.1))

    def start(verb: str) -> subprocess.Popen[str]:
        return start_tfk8s(verb, "-n", namespace, name)

    def run(verb: str) -> None:
        ended = start(verb)
        _, error = ended.communicate(timeout=180)
        assert ended.returncode == 0, error
        if verb == "suspend":
            assert [pod for pod in left(client, namespace, name) if pod.startswith("Pod ")] == limits_pod()
            assert backend.observe(name).phase is Phase.SUSPENDED

    def limits_pod() -> list[str]:
        return [pod for pod in left(client, namespace, name) if pod.startswith(f"Pod {name}-lifetime-")]

    def until_begun() -> None:
        polling.wait_until(lambda: begins(output(backend, name)), "the program to begin", 120)

    address = backend.observe(name).tasks[0].address
    disturb(start, run, until_begun, TIMES)
    assert backend.observe(name).tasks[0].address == address
    found = ends(backend, name)
    assert weights(found) == weights(calm)
    assert 0 < begins(found)[-1] <= STEPS


def test_an_idle_cluster_is_suspended_resumed_and_removed(
    up: Callable[[JobFile], str], backend: KubernetesBackend, client: KubeApi, namespace: str
) -> None:
    job_file = make_job_file("sleepy", make_job(tasks=2), idle=IdleLimits(suspend=10, remove=60))
    cluster = Cluster(backend, up(job_file))

    def until_suspended() -> None:
        polling.wait_until(lambda: cluster.status().suspended, "the suspension", 60)
        assert ", idle for 10s: tfk8s resume" in cluster.status().reason

    def pods() -> list[str]:
        found = [item for item in left(client, namespace, "sleepy") if item.startswith("Pod ")]
        return [pod for pod in found if not pod.startswith("Pod sleepy-lifetime-")]

    until_suspended()
    polling.wait_until(lambda: not pods(), "the end of the pods", 60)
    assert not backend.plan(job_file)
    assert not cluster.suspend()
    assert cluster.resume(timeout=180)
    assert len(pods()) == 2
    until_suspended()
    polling.wait_until(lambda: not pods(), "the end of the pods", 60)
    removed = "tfk8s removed it after 1m without a session and a script (idle)"
    polling.wait_until(lambda: removed in why_gone(backend, "sleepy"), removed, 180)


def why_gone(backend: KubernetesBackend, name: str) -> str:
    """Return what is said of a cluster that is gone; "" of another."""
    try:
        backend.observe(name)
    except NoSuchCluster as error:
        return str(error)
    return ""


def test_servers_keep_their_names_and_nothing_else(
    up: Callable[[JobFile], str], backend: KubernetesBackend, client: KubeApi, namespace: str
) -> None:
    job_file = make_job_file("asleep", make_job(tasks=2))
    cluster = Cluster(backend, up(job_file))
    before = [(task.task, task.address) for task in cluster.tasks()]
    assert cluster.suspend(lose_variables=True)
    assert not [item for item in left(client, namespace, "asleep") if item.startswith("Pod ")]
    assert [(task.task, task.address) for task in cluster.tasks()] == before
    assert not backend.plan(job_file)
    with pytest.raises(ClusterError, match="is suspended since"):
        cluster.scale({"worker": 3})
    up(job_file)
    assert cluster.status().phase is Phase.READY
    assert cluster.suspend(lose_variables=True)
    assert cluster.resume(timeout=180)
    assert cluster.scale({"worker": 3}, timeout=180)
    assert len(cluster.tasks()) == 3
