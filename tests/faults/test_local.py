"""The rows of the table of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.local import LocalEnvironment
from harness.row import Row, check
from rows.local import ROWS


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, state_home: Path) -> Iterator[LocalEnvironment]:
    environment = LocalEnvironment(tmp_path_factory.mktemp("faults"))
    yield environment
    environment.remove()


@pytest.fixture
def environment(shared: LocalEnvironment) -> Iterator[LocalEnvironment]:
    yield shared
    shared.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    thorough = metafunc.config.getoption("--reliability")
    metafunc.parametrize("row", [row for row in ROWS if thorough or not row.thorough], ids=lambda row: row.id)


def test_a_row(row: Row, environment: LocalEnvironment, note: Callable[..., None]) -> None:
    ended = row.run(environment)
    note(row, "local", ended)
    check(row, ended)
    environment.require_left(row.left)
