"""Only the cluster's own pods can connect to a task's port."""

from collections.abc import Callable

import pytest
from on_cluster import devices, make_job, make_job_file

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.core.job_file.mappings import Network, Source
from tfk8s.render import manifests, pod_volumes

ASK = """
import socket, sys
for _ in range(20):
    try:
        stream = socket.create_connection((sys.argv[1], 2222), 1)
        stream.settimeout(1)
        stream.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + b"\\0\\0\\0\\4\\0\\0\\0\\0\\0")
        print("answers" if stream.recv(9) else "closed")
    except OSError as error:
        print("silent", error)
"""


@pytest.fixture
def ask(visit) -> Callable[..., str]:
    """Runs a pod that tries to reach an address; returns the last thing that it saw."""

    def ask(namespace: str, address: str, labels: dict[str, str]) -> str:
        return visit(namespace, labels, ASK, address).splitlines()[-1]

    return ask


@pytest.fixture
def address(client, namespace, cluster) -> str:
    return client.get(paths.pod(namespace, f"{cluster}-worker-1"))["status"]["podIP"]


def test_tasks_and_forwards_reach_each_other(backend, cluster):
    assert len(devices(backend, cluster)) == 2


def test_a_pod_of_the_same_namespace_does_not_reach_a_task(ask, namespace, address):
    assert "silent" in ask(namespace, address, {"app": "visitor"})


def test_a_pod_of_another_namespace_does_not_reach_a_task(ask, make_namespace, address):
    assert "silent" in ask(make_namespace(), address, manifests.selector("shared"))


def test_a_pod_of_the_cluster_reaches_a_task(ask, namespace, address):
    assert ask(namespace, address, manifests.selector("shared")) == "answers"


def test_a_pod_that_the_job_file_allows_reaches_a_task(up, ask, client, namespace):
    network = Network(allow_from=(Source(pods={"app": "visitor"}),))
    name = up(make_job_file("open", make_job(), network=network))
    address = client.get(paths.pod(namespace, f"{name}-worker-0"))["status"]["podIP"]
    assert ask(namespace, address, {"app": "visitor"}) == "answers"


def test_the_masters_service_leads_to_the_master(ask, namespace, cluster):
    assert ask(namespace, f"{cluster}-master", manifests.selector(cluster)) == "answers"
    assert pod_volumes.PACKAGE_FOLDER
