"""Fixtures of the tests with PodGroups, in the kind cluster of the current kubeconfig context."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kube_api import KubeApi
from slots import Floor


@pytest.fixture(scope="session")
def client() -> KubeApi:
    return KubeApi()


@pytest.fixture
def floor(client: KubeApi) -> Iterator[Floor]:
    made = Floor(client)
    yield made
    client.send("DELETE", f"/api/v1/namespaces/{made.namespace}")
