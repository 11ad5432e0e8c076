"""Fixtures of the tests on a real cluster: the current context, and a namespace that enforces pod security."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from kube_api import KubeApi
from on_cluster import IMAGE, left, make_job_file

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.backends.kubernetes.nodes import scheduling
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.job_file.mappings import Security
from tfk8s.core.spec import JobFile
from tfk8s.render import pods

# Where the tests run in a shell's background, SIGINT is ignored, and would be in all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def client() -> KubeApi:
    return KubeApi()


@pytest.fixture(scope="session")
def make_namespace(client: KubeApi) -> Iterator[Callable[[], str]]:
    """Makes namespaces that enforce the pod security standard `restricted`."""
    made = []

    def make() -> str:
        name = f"tfk8s-test-{secrets.token_hex(3)}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        client.send("POST", "/api/v1/namespaces", body=body)
        made.append(name)
        return name

    yield make
    for name in made:
        client.send("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def namespace(make_namespace: Callable[[], str]) -> str:
    return make_namespace()


@pytest.fixture(scope="session")
def backend(namespace: str) -> KubernetesBackend:
    return KubernetesBackend(namespace=namespace)


@pytest.fixture
def up(backend: KubernetesBackend, client: KubeApi, namespace: str) -> Iterator[Callable[[JobFile], str]]:
    """Makes clusters that last for one test; returns their names once they are ready."""
    made = []

    def make(job_file: JobFile, wait: float = 180) -> str:
        made.append(job_file.name)
        backend.apply(job_file)
        if wait:
            wait_until_ready(backend, job_file.name, wait)
        return job_file.name

    yield make
    for name in dict.fromkeys(made):
        if left(client, namespace, name):
            backend.delete(name)


@pytest.fixture
def visit(client: KubeApi) -> Iterator[Callable[..., str]]:
    """Runs a program in a pod that is no part of a cluster; returns what the program has printed."""
    made = []

    def visit(namespace: str, labels: dict[str, str], program: str, *arguments: str) -> str:
        name = f"visitor-{secrets.token_hex(3)}"
        container = {
            "name": "visitor", "image": IMAGE, "command": ["python3", "-u", "-c", program, *arguments],
            "securityContext": pods.container_security(),
        }  # fmt: skip
        security = pods.pod_security(Security())
        body = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {"securityContext": security, "containers": [container], "restartPolicy": "Never"},
        }  # fmt: skip
        client.send("POST", paths.collection("Pod", namespace), body=body)
        made.append(paths.path(body, namespace))
        polling.wait_until(
            lambda: client.get(made[-1])["status"]["phase"] in ("Succeeded", "Failed"), "the visitor to end", 180
        )
        return client.text(f"{made[-1]}/log")

    yield visit
    for path in made:
        client.send("DELETE", path, {"gracePeriodSeconds": 0})


@pytest.fixture
def unseen_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user may not list nodes, so that pods which fit no node wait instead of being refused."""
    monkeypatch.setattr(scheduling, "list_nodes", lambda client: [])


@pytest.fixture(scope="session")
def cluster(backend: KubernetesBackend) -> Iterator[str]:
    """Two workers that tests leave as they are."""
    backend.apply(make_job_file("shared"))
    wait_until_ready(backend, "shared", 120)
    yield "shared"
    backend.delete("shared")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    space = getattr(item, "funcargs", {}).get("namespace")
    if report.failed and space:  # type: ignore[attr-defined]
        for arguments in (
            ["get", "events", "--sort-by=.lastTimestamp"],
            ["describe", "pods"],
            ["logs", "--selector=app.kubernetes.io/name=tfk8s", "--tail=30", "--prefix", "--max-log-requests=50"],
        ):
            command = ["kubectl", "-n", space, *arguments]
            output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            report.sections.append((" ".join(command), output.stdout + output.stderr))  # type: ignore[attr-defined]
    return report
