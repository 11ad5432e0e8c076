"""The rows of the table of Kubernetes, in the kubeconfig's current context."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from harness.kube import KubeEnvironment
from harness.row import Row, check
from rows.kube import ON_KIND, ROWS

IMAGE = os.environ.get("TFK8S_TEST_IMAGE", "docker.io/tfk8s/test:dev")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeEnvironment]:
    environment = KubeEnvironment(tmp_path_factory.mktemp("faults"), IMAGE)
    yield environment
    environment.remove()
    environment.discard()


@pytest.fixture
def environment(shared: KubeEnvironment) -> Iterator[KubeEnvironment]:
    yield shared
    shared.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    thorough = metafunc.config.getoption("--reliability")
    rows = [row for row in (*ROWS, *ON_KIND) if thorough or not row.thorough]
    metafunc.parametrize("row", rows, ids=lambda row: row.id)


def test_a_row(row: Row, environment: KubeEnvironment, note: Callable[..., None]) -> None:
    if row in ON_KIND and not environment.client.context.startswith("kind-"):
        pytest.skip("it breaks what all of a cluster needs: only in one of kind's")
    ended = row.run(environment)
    note(row, "kind", ended)
    check(row, ended)
    environment.close()
    environment.require_left(row.left)
