"""The limits `max_duration` and `idle` and the lease on Kubernetes: the cluster's own Job removes the cluster."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kube_api import KubeApi
from on_cluster import IMAGE, left, make_job, make_job_file

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.backends.kubernetes.workloads import lifetime
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.job_file.mappings import IdleLimits
from tfk8s.core.lifetime import RENEWED, Limits
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.errors import NoSuchCluster
from tfk8s.sessions.task_monitor import TaskMonitor

Up = Callable[[JobFile], str]
IDLE = 12
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
KINDS = ("StatefulSet", "PodDisruptionBudget", "Service", "ConfigMap", "NetworkPolicy", "ServiceAccount", "Role",
         "RoleBinding")  # fmt: skip
SCRIPT = f"""
import os, time
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
with tf.device("/job:worker/task:1"):
    two = tf.constant(1) + 1
with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    assert session.run(two) == 2
time.sleep({IDLE + 6})
"""


def remaining(client: KubeApi, namespace: str, name: str) -> list[str]:
    """Return the objects of a cluster, without its ended Job and the Job's pod."""
    return [
        f"{kind} {item['metadata']['name']}"
        for kind in (*KINDS, "Job", "Pod")
        for item in client.get(paths.collection(kind, namespace), paths.of_cluster(name))["items"]
        if kind not in ("Job", "Pod") or not lifetime.is_lifetime(item)
    ]


def until_removed(client: KubeApi, namespace: str, name: str) -> None:
    """Wait until the cluster is removed, and its Job has ended."""

    def job_is_ended() -> bool:
        jobs = client.get(paths.collection("Job", namespace), paths.of_cluster(name))["items"]
        return any(lifetime.is_ended({**job, "kind": "Job"}) for job in jobs)

    polling.wait_until(
        lambda: job_is_ended() and not remaining(client, namespace, name),
        lambda: f"the end of {remaining(client, namespace, name)}",
        180,
    )


def pod_of_the_job(client: KubeApi, namespace: str, name: str) -> str:
    pods = client.get(paths.collection("Pod", namespace), paths.of_cluster(name))["items"]
    return next(str(pod["metadata"]["name"]) for pod in pods if lifetime.is_lifetime(pod))


def test_scripts_and_forwards_keep_a_cluster_that_is_removed_without_them(
    up: Up, backend: KubernetesBackend, client: KubeApi, namespace: str, tmp_path: Path
) -> None:
    name = up(make_job_file("idle", make_job(tasks=2), idle=IDLE))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    client.send("DELETE", paths.pod(namespace, pod_of_the_job(client, namespace, name)))  # another one takes over
    assert backend.scripts.run(name, Script(path=script)).code == 0
    with TaskMonitor({"worker/1": lambda: backend.dial(name, Task("worker", 1))}) as monitor:
        assert not polling.readable(monitor.events, IDLE + 6)  # the task is not lost
    status = backend.observe(name)
    assert (status.limits.idle, len(status.scripts), status.ready) == (IDLE, 1, 2)
    # The tasks are still connected to each other.
    until_removed(client, namespace, name)
    with pytest.raises(NoSuchCluster, match=rf"tfk8s removed it after {IDLE}s without a session and a script \(idle\)"):
        backend.observe(name)
    assert backend.apply(make_job_file("idle", make_job(tasks=2))) is True  # without limits, and without the old Job
    assert not [one for one in left(client, namespace, name) if one.startswith("Job")]


def test_the_duration_removes_the_cluster_with_a_script_in_it(
    up: Up, backend: KubernetesBackend, client: KubeApi, namespace: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time; time.sleep(600)")
    name = up(make_job_file("short", make_job(), max_duration=25), wait=0)  # a slow machine may need most of the time
    backend.detached.start(name, Script(path=script))
    until_removed(client, namespace, name)
    with pytest.raises(NoSuchCluster, match=r"tfk8s removed it 25s after its first `up` \(max_duration\)"):
        backend.observe(name)
    # The same limits again, while the ended Job is there.
    assert up(make_job_file("short", make_job(), max_duration=3600)) == name


def test_a_drain_takes_the_master_while_nobody_uses_the_cluster(
    up: Up, backend: KubernetesBackend, client: KubeApi, namespace: str
) -> None:
    job_file = make_job_file("drained", make_job(), drain="idle")
    name = up(job_file)
    budget = f"{paths.collection('PodDisruptionBudget', namespace)}/{name}-worker"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": f"{name}-worker-0"}}

    def evict() -> int:
        """Return the status: 429 if a budget forbids the eviction."""
        return int(client.request("POST", paths.pod(namespace, f"{name}-worker-0", "eviction"), body=eviction).status)

    def allowed() -> int:
        return int(client.get(budget)["status"]["disruptionsAllowed"])

    assert evict() == 429  # the Job has not looked yet, or not long enough
    polling.wait_until(lambda: allowed() == 1, "an open budget", 120)
    assert backend.apply(job_file) is False  # an `up` leaves the budget open
    assert backend.plan(dataclasses.replace(job_file, drain="block")).changes  # and no conflict
    assert evict() == 201
    wait_until_ready(backend, name, 180)
    with TaskMonitor({"worker/0": lambda: backend.dial(name, Task("worker", 0))}):
        polling.wait_until(lambda: allowed() == 0, "a closed budget", 90)
        assert evict() == 429


@pytest.mark.usefixtures("unseen_nodes")
def test_the_account_may_get_and_delete_its_own_cluster_alone(up: Up, client: KubeApi, namespace: str) -> None:
    idle = IdleLimits(suspend=600, remove=1200)
    name = up(make_job_file("mine", make_job(node_selector={"no": "node"}), idle=idle), wait=0)
    user = f"system:serviceaccount:{namespace}:{name}-lifetime"

    def may(verb: str, resource: str, group: str = "", name: str = "", inside: str = namespace) -> bool:
        whole, _, part = resource.partition("/")
        about = {"verb": verb, "resource": whole, "subresource": part, "group": group, "name": name,
                 "namespace": inside}  # fmt: skip
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        review = client.send("POST", REVIEWS, body={**body, "spec": {"user": user, "resourceAttributes": about}})
        return bool(review["status"]["allowed"])

    polling.wait_until(lambda: may("delete", "configmaps", name="mine"), "the account's rights", 60)
    assert may("delete", "statefulsets", "apps", "mine-worker")
    assert may("delete", "serviceaccounts", name="mine-lifetime")
    for verb in ("list", "create", "patch", "update", "deletecollection", "watch"):
        assert not may(verb, "configmaps", name="mine"), verb
    assert not may("delete", "configmaps", name="others")
    assert not may("delete", "configmaps")
    assert not may("delete", "configmaps", name="mine", inside="default")
    assert not may("delete", "statefulsets", "apps", "mine-other")
    own_job = next(item.partition(" ")[2] for item in left(client, namespace, name) if item.startswith("Job "))
    assert may("patch", "statefulsets/scale", "apps", "mine-worker")
    assert may("patch", "jobs", "batch", own_job)
    assert not may("patch", "statefulsets", "apps", "mine-worker")
    assert not may("patch", "statefulsets/scale", "apps", "mine-other")
    assert not may("delete", "jobs", "batch", own_job)
    for resource, group in (("secrets", ""), ("pods", ""), ("jobs", "batch"), ("roles", "rbac.authorization.k8s.io")):
        assert not may("get", resource, group, "mine-lifetime"), resource
        assert not may("delete", resource, group, "mine-lifetime"), resource


LEASE = 6  # seconds
KEPT_FOR = 18  # renewals: longer than the lease
KILLED = f"""
apiVersion: tfk8s.dev/v1
name: killed
image: {IMAGE}
jobs: {{worker: {{cpu: 150m, memory: 1Gi}}}}
"""
RUN_WITH_A_SHORT_LEASE = f"""
import sys
from tfk8s.core import lifetime
lifetime.LEASE = {LEASE}
from tfk8s.__main__ import main
sys.exit(main())
"""


def test_a_killed_run_leaves_a_cluster_that_is_removed_when_its_lease_ends(
    backend: KubernetesBackend, client: KubeApi, namespace: str, tmp_path: Path
) -> None:
    script, file = tmp_path / "script.py", tmp_path / "cluster.yaml"
    script.write_text("print('begin', flush=True); import time; time.sleep(600)")
    file.write_text(KILLED)
    command = [sys.executable, "-c", RUN_WITH_A_SHORT_LEASE, "run", "--namespace", namespace, file, script]
    account = f"{paths.collection('ServiceAccount', namespace)}/killed-lifetime"
    seen: set[str] = set()

    def is_renewed() -> bool:
        seen.add(client.get(account)["metadata"].get("annotations", {}).get(RENEWED, ""))
        return len(seen) > KEPT_FOR

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout
            assert run.stdout.readline() == "begin\n"
            polling.wait_until(is_renewed, "renewals", 120)
            status = backend.observe("killed")
            assert (status.ready, status.limits) == (1, Limits(None, None, LEASE))
        finally:
            run.kill()
        assert run.stderr
        assert f"the cluster is removed if this command is gone for {LEASE}s" in run.stderr.read()
    until_removed(client, namespace, "killed")
    with pytest.raises(NoSuchCluster, match=rf"tfk8s removed it after its `run` had been gone for {LEASE}s \(lease\)"):
        backend.observe("killed")
