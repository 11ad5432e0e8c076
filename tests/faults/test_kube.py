"""The rows of the table on Kubernetes, in the kubeconfig's current context."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from kube_place import Kube
from kube_table import ON_KIND, ROWS
from rows import Row, check

IMAGE = os.environ.get("TFK8S_TEST_IMAGE", "docker.io/tfk8s/test:dev")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    place = Kube(tmp_path_factory.mktemp("faults"), IMAGE)
    yield place
    place.remove()
    place.discard()


@pytest.fixture
def place(shared: Kube) -> Iterator[Kube]:
    yield shared
    shared.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    thorough = metafunc.config.getoption("--reliability")
    rows = [row for row in (*ROWS, *ON_KIND) if thorough or not row.thorough]
    metafunc.parametrize("row", rows, ids=lambda row: row.id)


def test_a_row(row: Row, place: Kube, note: Callable[..., None]) -> None:
    if row in ON_KIND and not place.client.context.startswith("kind-"):
        pytest.skip("it breaks what all of a cluster needs: only in one of kind's")
    ended = row.act(place)
    note(row, "kind", ended)
    check(row, ended)
    place.close()
    place.require_left(row.left)
