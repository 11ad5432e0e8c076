"""Fixtures of the tests with a real Kueue, in the kind cluster of the current kubeconfig context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kube_api import KubeApi
from team import Team, install


@pytest.fixture(scope="session")
def client() -> KubeApi:
    return KubeApi()


@pytest.fixture(scope="session")
def kueue(client: KubeApi) -> None:
    install(client.context)


@pytest.fixture
def team(client: KubeApi, kueue: None) -> Iterator[Callable[..., Team]]:
    """Makes namespaces with a queue that has a quota of cores."""
    made = []

    def make(quota: str, **spec: Any) -> Team:
        made.append(Team(client, quota, **spec))
        return made[-1]

    yield make
    for one in made:
        one.remove()
