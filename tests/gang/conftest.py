"""Fixtures of the tests with PodGroups, in the kind cluster of the current kubeconfig context."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kube_api import MERGE, KubeApi
from slots import SLOT

from tfk8s import polling
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.status import ClusterStatus, Phase

WAIT = 120.0


class Floor:
    """A namespace on a cluster with one node.

    Attributes:
        backend: the back end for its clusters.
    """

    def __init__(self, client: KubeApi) -> None:
        self._client, self.namespace = client, f"tfk8s-gang-{secrets.token_hex(3)}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        client.send("POST", "/api/v1/namespaces", body=body)
        self.backend = KubernetesBackend(namespace=self.namespace)

    def give(self, slots: int) -> None:
        """Let the node have this number of slots."""
        (node,) = self._client.get("/api/v1/nodes")["items"]
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        amounts = {SLOT: str(slots)}
        body = {"status": {"capacity": amounts, "allocatable": amounts}}
        self._client.send("PATCH", f"{path}/status", body=body, content_type=MERGE)
        polling.wait_until(
            lambda: self._client.get(path)["status"]["allocatable"].get(SLOT) == str(slots), "the node's slots", WAIT
        )

    def pods(self) -> dict[str, Any]:
        """Return the pods of tasks by name."""
        items = self._client.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {item["metadata"]["name"]: item for item in items if "lifetime" not in item["metadata"]["name"]}

    def placed(self) -> set[str]:
        """Return the clusters that have a pod with a node."""
        return {name.partition("-")[0] for name, pod in self.pods().items() if "nodeName" in pod["spec"]}

    def pod_groups(self) -> dict[str, Any]:
        """Return the PodGroups by name."""
        items = self._client.get(f"/apis/scheduling.k8s.io/v1beta1/namespaces/{self.namespace}/podgroups")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def min_count(self, name: str) -> int:
        """Return the number of tasks that a cluster's PodGroup starts together."""
        return int(self.pod_groups()[name]["spec"]["schedulingPolicy"]["gang"]["minCount"])

    def until(self, name: str, condition: Callable[[ClusterStatus], object]) -> ClusterStatus:
        """Wait until the status of a cluster meets a condition; return the status."""
        seen: list[ClusterStatus] = []

        def is_met() -> object:
            seen[:] = [self.backend.observe(name)]
            return condition(seen[0])

        polling.wait_until(is_met, lambda: f"{name}: {[str(task.state) for task in seen[0].tasks]}", WAIT)
        return seen[0]

    def until_ready(self, name: str) -> ClusterStatus:
        """Wait until all tasks of a cluster run."""
        return self.until(name, runs)


def runs(found: ClusterStatus) -> bool:
    """Return whether all tasks of a cluster run."""
    return all(task.phase in (Phase.READY, Phase.RUNNING) for task in found.tasks)


@pytest.fixture(scope="session")
def client() -> KubeApi:
    return KubeApi()


@pytest.fixture
def floor(client: KubeApi) -> Iterator[Floor]:
    made = Floor(client)
    yield made
    client.send("DELETE", f"/api/v1/namespaces/{made.namespace}")
