"""Fixtures: clusters of TensorFlow servers on this machine, in a state folder of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import is_ready, wait_for
from job_files import job_file
from own_state import own_state

from tfk8s.backends.local import LocalBackend, state
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_state(tmp_path_factory) as home:
        yield home


@pytest.fixture(scope="session")
def backend() -> LocalBackend:
    return LocalBackend()


@pytest.fixture(scope="session")
def pair(state_home: Path, backend: LocalBackend) -> Iterator[str]:
    """A cluster of two tasks that tests leave as it is."""
    backend.apply(job_file("pair", local=2))
    yield "pair"
    backend.delete("pair")


@pytest.fixture
def up(backend: LocalBackend) -> Iterator[Callable[[JobFile], str]]:
    """Starts clusters for one test, and returns their names."""
    started: list[str] = []

    def up(job_file: JobFile) -> str:
        backend.apply(job_file)
        started.append(job_file.name)
        return job_file.name

    yield up
    for folder in state.folders():
        if folder.path.name in started:
            backend.delete(folder.path.name)


@pytest.fixture
def cluster(backend: LocalBackend, up: Callable[[JobFile], str]) -> str:
    """A cluster of two workers and a ps that one test may change."""
    name = up(job_file("own", worker=2, ps=1))
    wait_for(backend, name, is_ready)
    return name


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
