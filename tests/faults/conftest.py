"""What the tests of faults share: a state folder of their own, and the report of what the table's rows gave."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import report
from commands import Ended
from rows import Row

from tfk8s.backends.local import LocalBackend, state

# Where the tests run in a shell's background, SIGINT is ignored, and would be in all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the tests' clusters apart from the user's, and fail where one is left over."""
    home = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home))
        patch.delenv("TFK8S_LOCAL", raising=False)
        yield home
        left = [folder.path.name for folder in state.folders()]
        for name in left:
            LocalBackend().delete(name)
        assert not left, f"clusters left over: {left}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reliability", metavar="FILE", help="write the table of faults, as this run found them, to FILE")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[report.FOUND] = []


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--reliability")
    if path:
        Path(path).write_text(report.page(session.config.stash[report.FOUND]))


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[Row, str, Ended], None]:
    """Notes how a row ended, for the report."""
    found = request.config.stash[report.FOUND]
    return lambda row, where, ended: found.append((row, where, ended))
