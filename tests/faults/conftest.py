"""Fixtures of the fault tests: a state folder, and the report of the rows' results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import report
from harness.command import Ended
from harness.row import Row
from own_state import own_state
from rows import kube, local

TABLES = {"local": local.ROWS, "kind": [*kube.ROWS, *kube.ON_KIND]}


@pytest.fixture(scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_state(tmp_path_factory) as home:
        yield home


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reliability", metavar="FILE", help="write the table of faults, as this run found them, to FILE")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[report.FOUND] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    if name := session.config.getoption("--reliability"):
        path = Path(name)
        before = path.read_text() if path.exists() else ""
        path.write_text(report.page(session.config.stash[report.FOUND], before, TABLES))


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[Row, str, Ended], None]:
    """Notes how a row ended, for the report; what that says of times must be so in the run that writes it."""
    found, writes = request.config.stash[report.FOUND], request.config.getoption("--reliability")

    def note(row: Row, where: str, ended: Ended) -> None:
        assert not writes or ended.seconds <= row.limit, f"{ended.seconds:.1f} s: {ended.out}{ended.err}"
        found.append((row, where, ended))

    return note
