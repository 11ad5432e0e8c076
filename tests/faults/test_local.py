"""The rows of the table on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local_place import Local
from rows import Row, check
from table import ROWS


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, state_home: Path) -> Iterator[Local]:
    place = Local(tmp_path_factory.mktemp("faults"))
    yield place
    place.remove()


@pytest.fixture
def place(shared: Local) -> Iterator[Local]:
    yield shared
    shared.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    thorough = metafunc.config.getoption("--reliability")
    metafunc.parametrize("row", [row for row in ROWS if thorough or not row.thorough], ids=lambda row: row.id)


def test_a_row(row: Row, place: Local, note: Callable[..., None]) -> None:
    ended = row.act(place)
    note(row, "local", ended)
    check(row, ended)
    place.require_left(row.left)
