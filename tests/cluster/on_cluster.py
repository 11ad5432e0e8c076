"""Helpers of the tests on a real cluster. `TFK8S_TEST_IMAGE` is an image on the nodes, such as images/cpu."""

from __future__ import annotations

import base64
import dataclasses
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import open_claims
import yaml
from job_files import job_file
from kube_api import MERGE, KubeApi

from tfk8s import polling
from tfk8s.backends.devices import list_devices, require_all
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import NoSuchCluster
from tfk8s.task import probe

IMAGE = os.environ.get("TFK8S_TEST_IMAGE", "docker.io/tfk8s/test:dev")


def start_tfk8s(*arguments: object, **options: object) -> subprocess.Popen[str]:
    """Start the command line in a process of its own, with an empty standard input."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "tfk8s", *map(str, arguments)]
    environment = {**os.environ, "TFK8S_LOCAL": "0"}
    return subprocess.Popen(command, env=environment, **{**streams, **options})  # type: ignore[call-overload,no-any-return]


def make_job(name: str = "worker", **settings: object) -> Job:
    """Return a job whose tasks fit many times on a small node."""
    small = {"cpu": Quantity.parse("150m"), "memory": Quantity.parse("1Gi")}
    return Job(**{"name": name, **small, **settings})  # type: ignore[arg-type]


def make_job_file(name: str, *jobs: Job, **settings: object) -> JobFile:
    """Return a job file for the nodes of the cluster, by default with two workers."""
    return job_file(name, *(jobs or (make_job(tasks=2),)), **{"image": IMAGE, **settings})


def kubeconfig(client: KubeApi, user: Mapping[str, str], server: str | None = None) -> str:
    """Return a kubeconfig for the same API server, or for another address, with other credentials."""
    authority = base64.b64encode(Path(client.configuration.ssl_ca_cert).read_bytes()).decode()
    cluster = {"server": server or client.url, "certificate-authority-data": authority}
    return yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "other",
        "clusters": [{"name": "other", "cluster": cluster}],
        "users": [{"name": "other", "user": dict(user)}],
        "contexts": [{"name": "other", "context": {"cluster": "other", "user": "other"}}],
    })  # fmt: skip


def token(client: KubeApi, namespace: str, account: str) -> str:
    """Return the token of a service account, which is made where there is none."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if client.find(f"{accounts}/{account}") is None:
        made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
        client.send("POST", accounts, body=made)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(client.send("POST", f"{accounts}/{account}/token", body=request)["status"]["token"])


def write_wheel(folder: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Write version 1 of a package as a wheel: pods may reach no index."""
    about = f"{name}-1.dist-info"
    texts = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in {**files, **texts}.items():
            wheel.writestr(path, content)


def devices(backend: KubernetesBackend, name: str) -> list[probe.Device]:
    """Return the devices of all tasks; every task answers the master."""
    answers = list_devices(backend, backend.observe(name))
    require_all(answers)
    return [device for answer in answers for device in answer.devices]


def left(client: KubeApi, namespace: str, name: str) -> list[str]:
    """Return the objects of a cluster, of the kinds that the API server has."""
    return [
        f"{kind} {one['metadata']['name']}"
        for kind in paths.KINDS
        if kind not in ("Event", "Workload")
        for one in (client.find(paths.collection(kind, namespace), paths.of_cluster(name)) or {"items": ()})["items"]
    ]


def make_claim(
    client: KubeApi, namespace: str, claim: str, *, is_open: bool = True, storage_class: str | None = None
) -> None:
    """Make a claim of one node, to which every user may write."""
    kind = {"storageClassName": storage_class} if storage_class else {}
    client.send("POST", paths.collection("PersistentVolumeClaim", namespace), body=open_claims.claim(claim, **kind))
    if is_open:
        open_claim(client, namespace, claim)


def until_limits_end(backend: KubernetesBackend, job_file: JobFile) -> None:
    """Let the limits of a cluster end now, and wait until the cluster is gone."""
    backend.apply(dataclasses.replace(job_file, max_duration=1))
    until_gone(backend, job_file.name)


def until_gone(backend: KubernetesBackend, name: str, timeout: float = 180) -> None:
    """Wait until there is no cluster of that name."""

    def is_gone() -> bool:
        try:
            backend.observe(name)
        except NoSuchCluster:
            return True
        return False

    polling.wait_until(is_gone, f"the end of {name}", timeout)


def open_claim(client: KubeApi, namespace: str, claim: str) -> None:
    """Let every user write to a claim, also where the provisioner of volumes leaves them to root."""
    pods, enforcement = f"/api/v1/namespaces/{namespace}/pods", "pod-security.kubernetes.io/enforce"
    made = open_claims.opener(claim, IMAGE)

    def enforce(standard: str) -> None:
        body = {"metadata": {"labels": {enforcement: standard}}}
        client.send("PATCH", f"/api/v1/namespaces/{namespace}", body=body, content_type=MERGE)

    enforce("privileged")
    try:
        polling.wait_until(  # the API server reads the label a little later
            lambda: client.request("POST", pods, body=made).status == 201, "the pod to be accepted", 60
        )
        polling.wait_until(
            lambda: client.get(f"{pods}/opener-{claim}")["status"]["phase"] == "Succeeded", "an open volume", 120
        )
    finally:
        enforce("restricted")
        client.send("DELETE", f"{pods}/opener-{claim}")


def until_reason(backend: KubernetesBackend, name: str, words: str, timeout: float = 120) -> str:
    """Return the reason of the first task that has these words in it."""

    def look() -> str | None:
        return next((task.reason for task in backend.observe(name).tasks if words in task.reason), None)

    found = polling.wait_until(look, lambda: f"“{words}”, and saw {backend.observe(name).tasks}", timeout)
    assert found is not None
    return found
