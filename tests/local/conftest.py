"""Clusters of real TensorFlow servers on this machine, each in a state folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import is_ready, job_file, wait_for
from own_state import own_state

from tfk8s.backends.local import LocalBackend, state
from tfk8s.core.script import Script


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_state(tmp_path_factory) as home:
        yield home


@pytest.fixture
def backend() -> LocalBackend:
    return LocalBackend()


@pytest.fixture(scope="session")
def pair(state_home: Path) -> Iterator[str]:
    """A cluster of two tasks that many tests share: they leave it as they found it."""
    backend = LocalBackend()
    backend.apply(job_file("pair", local=2))
    yield "pair"
    backend.delete("pair")


@pytest.fixture
def cluster(backend: LocalBackend, request: pytest.FixtureRequest) -> Iterator[str]:
    """A cluster of a ps and two workers for one test, which may do to it what it likes."""
    name = "own-" + str(abs(hash(request.node.name)))[:8]
    backend.apply(job_file(name, worker=2, ps=1))
    wait_for(backend, name, is_ready)
    yield name
    if any(folder.path.name == name for folder in state.folders()):
        backend.delete(name)


@pytest.fixture
def run(
    backend: LocalBackend, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a script's text on a cluster; return its exit code, standard output and standard error."""

    def run(name: str, text: str, *arguments: str, **options: object) -> tuple[int, str, str]:
        path = tmp_path / "script.py"
        path.write_text(text)
        code = backend.run(name, Script(path=path, arguments=arguments, **options)).code
        out, err = capfd.readouterr()
        return code, out, err

    return run
