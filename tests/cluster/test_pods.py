"""Pods with what platform teams need: Secrets, shared memory, other containers, labels; in a restricted namespace."""

import base64

import pytest
from on_cluster import IMAGE, left, make_job, make_job_file

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.job_file.mappings import EnvSource, Topology
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import LogOptions, Script
from tfk8s.core.spec import Task
from tfk8s.errors import InvalidInput

SEE = """
import os, socket, subprocess
shared = os.statvfs("/dev/shm")
print(os.environ["TOKEN"], os.environ["REGION"], socket.gethostbyname("storage.internal"))
print(shared.f_frsize * shared.f_blocks >> 20, os.path.isdir("/model"))
"""
SIDECAR = {
    "name": "a-sidecar", "image": IMAGE,
    "command": ["python3", "-c", "import time\nprint('beside', flush=True)\ntime.sleep(1000)"],
    "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}, "limits": {"cpu": 0.1, "memory": "100Mi"}},
}  # fmt: skip
POD = {
    "hostAliases": [{"ip": "10.0.0.7", "hostnames": ["storage.internal"]}],
    "volumes": [{"name": "model", "emptyDir": {}}],
    "containers": [SIDECAR, {"name": "server", "volumeMounts": [{"name": "model", "mountPath": "/model"}]}],
}


@pytest.fixture
def sources(client, namespace):
    """A Secret and a ConfigMap."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "storage"}}
    secret["data"] = {"token": base64.b64encode(b"t0k3n").decode()}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"region": "eu"}}
    for item in (secret, config_map):
        client.send("POST", paths.collection(item["kind"], namespace), body=item)


@pytest.mark.usefixtures("sources")
def test_a_script_and_a_task_get_all_that_the_job_file_asks_for(
    up, backend: KubernetesBackend, client, namespace, tmp_path, capfd
):
    env = {"TOKEN": EnvSource(secret="storage", key="token"), "REGION": EnvSource(config_map="settings", key="region")}
    job = make_job(
        cpu=Quantity.parse("50m"), shm=Quantity.parse("100Mi"), topology=Topology(spread="zone"), pod=POD,
        labels={"team": "ads"},
    )  # fmt: skip
    annotations = {"linkerd.io/inject": "disabled"}
    job_file = make_job_file("usual", job, env=env, annotations=annotations, image_pull_secrets=("login",))
    name = up(job_file)
    assert not backend.plan(job_file)

    (tmp_path / "see.py").write_text(SEE)
    assert backend.scripts.run(name, Script(path=tmp_path / "see.py")).code == 0
    assert capfd.readouterr().out.splitlines() == ["t0k3n eu 10.0.0.7", "100 True"]
    lines = [line.text for line in backend.logs(name, [Task("worker", 0)], LogOptions())]
    assert any("listens on port" in line for line in lines)
    assert "beside" not in lines

    pods = client.get(paths.collection("Pod", namespace), paths.of_cluster(name))["items"]
    task, script = sorted(pods, key=lambda pod: pod["metadata"]["name"] != "usual-worker-0")
    for pod in (task, script):
        assert pod["metadata"]["labels"]["team"] == "ads"
        assert pod["metadata"]["annotations"]["linkerd.io/inject"] == "disabled"
        assert pod["spec"]["imagePullSecrets"] == [{"name": "login"}]
    (constraint,) = task["spec"]["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "topology.kubernetes.io/zone"
    server = task["spec"]["containers"][0]
    assert server["resources"]["limits"]["memory"] == "1124Mi"
    backend.restart(name, Task("worker", 0))


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_the_api_server_refuses_is_named_and_changes_nothing(backend, client, namespace, dry_run):
    job_file = make_job_file("refused", make_job(pod={"hostAliasses": []}))
    message = "the API server refuses jobs.worker.pod.hostAliasses: there is no such field"
    with pytest.raises(InvalidInput, match=f"(?m)^{message}$"):
        backend.plan(job_file) if dry_run else backend.apply(job_file)
    assert left(client, namespace, "refused") == []
