"""Scripts and tasks in namespaces whose LimitRange and quota are tight."""

from __future__ import annotations

import pytest
from on_cluster import make_job, make_job_file

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.cluster.scripts import make_script
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import ScriptResources
from tfk8s.errors import ClusterError, InvalidInput, WaitTimeout
from tfk8s.render import script_job

MAXIMUM = {"cpu": "1", "memory": "1Gi"}
NAME = "tight"


def job_file(cpu: str = "50m", **settings: object):
    job = make_job(cpu=Quantity.parse(cpu), memory=Quantity.parse("700Mi"))
    return make_job_file(NAME, job, **settings)


@pytest.fixture(scope="module")
def tight(client, make_namespace):
    """A namespace in which a container has at most a core and 1Gi, and all have at most 2200Mi; with a cluster."""
    namespace = make_namespace()
    limits = {"metadata": {"name": "tight"}, "spec": {"limits": [{"type": "Container", "max": MAXIMUM}]}}
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"limits.memory": "2200Mi"}}}
    for kind, body in (("limitranges", limits), ("resourcequotas", quota)):
        client.send("POST", f"/api/v1/namespaces/{namespace}/{kind}", body=body)
    backend = KubernetesBackend(namespace=namespace)
    backend.apply(job_file())
    wait_until_ready(backend, NAME, 120)
    yield backend
    backend.delete(NAME)


@pytest.fixture
def script(tmp_path):
    """Makes a script with options."""
    path = tmp_path / "hello.py"
    path.write_text("import os; print('from', os.uname().nodename)")
    return lambda **options: make_script(path, **options)


def pods_of(client, backend, kind):
    namespace = backend.locator(NAME).namespace
    pods = client.get(paths.collection("Pod", namespace), paths.of_cluster(NAME))["items"]
    return [pod for pod in pods if pod["metadata"]["labels"]["app.kubernetes.io/component"] == kind]


def test_scripts_run_within_the_limits_of_their_namespace(client, tight, script, capfd):
    for fresh in (False, True):
        assert tight.scripts.run(NAME, script(fresh=fresh)).code == 0
        assert f"from {NAME}-{'script' if fresh else 'warm'}-" in capfd.readouterr().out
    (pod,) = pods_of(client, tight, script_job.manifests.SCRIPT)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert (limits["cpu"], limits["memory"]) == ("1", "700Mi")


def test_a_script_that_the_namespace_refuses_ends_with_the_reason(tight, script):
    with pytest.raises(ClusterError, match=r"LimitRange refuses its pod .*: change script\.cpu or memory"):
        tight.scripts.run(NAME, script(memory="1200Mi"))


def test_a_script_waits_for_a_quota_as_long_as_the_command_says(tight, script):
    tight.scripts.run(NAME, script())  # the warm pod stays, and leaves 800Mi
    with pytest.raises(WaitTimeout, match=r'^waited 8 s for the script to start: the namespace\'s quota "small"'):
        tight.scripts.run(NAME, script(memory="900Mi", start_timeout=8.0))


def test_up_ends_no_task_for_pods_that_the_namespace_refuses(client, tight):
    (before,) = pods_of(client, tight, "worker")
    with pytest.raises(InvalidInput, match="new pods of job worker can't be created: the namespace's LimitRange"):
        tight.apply(job_file("2"))
    (after,) = pods_of(client, tight, "worker")
    assert before["metadata"]["uid"] == after["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]


def test_the_job_file_names_the_resources_of_scripts_without_a_restart(client, tight, script, capfd):
    (before,) = pods_of(client, tight, "worker")
    memory, shm = Quantity.parse("512Mi"), Quantity.parse("64Mi")
    tight.apply(job_file(script=ScriptResources(memory=memory, shm=shm), warm=False))
    assert tight.scripts.run(NAME, script()).code == 0
    name = capfd.readouterr().out.split()[-1]
    (pod,) = [one for one in pods_of(client, tight, script_job.manifests.SCRIPT) if one["metadata"]["name"] == name]
    assert pod["spec"]["containers"][0]["resources"]["limits"]["memory"] == "576Mi"
    (after,) = pods_of(client, tight, "worker")
    assert before["metadata"]["uid"] == after["metadata"]["uid"]
