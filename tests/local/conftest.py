"""Fixtures: clusters of TensorFlow servers on this machine, in a state folder of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import is_ready, wait_for
from job_files import job_file
from own_state import own_state

from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile
from tfk8s.task.server import find_tensorflow

PYTHONPATH = os.environ.get("PYTHONPATH")

CLIENT = """
import pathlib, sys
from tfk8s.core.script import Script
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.errors import Tfk8sError
try:
    script = Script(path=pathlib.Path(sys.argv[2]), tf1="1" in sys.argv[3])
    sys.exit(LocalBackend().scripts.run(sys.argv[1], script).code)
except Tfk8sError as error:
    sys.stderr.write(str(error))
    sys.exit(error.exit_code)
"""


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_state(tmp_path_factory) as home:
        yield home


@pytest.fixture(scope="session")
def backend() -> LocalBackend:
    return LocalBackend()


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package `tensorflow` that has TensorFlow's libraries, and whose import does nothing."""
    real = find_tensorflow()
    assert real is not None
    package = tmp_path_factory.mktemp("libraries") / "tensorflow"
    (package / "compat").mkdir(parents=True)
    for name in ("__init__.py", "compat/__init__.py", "compat/v1.py"):
        (package / name).touch()
    for library in Path(real).glob("*.so*"):
        (package / library.name).symlink_to(library)
    (package / "python").mkdir()
    (package / "python/platform").symlink_to(Path(real, "python/platform"))  # says whether the build is for GPUs
    return package.parent


@pytest.fixture(scope="module")
def servers_only(libraries: Path) -> Iterator[None]:
    """Real servers, and scripts without TensorFlow: its import takes each new cluster 4 s of CPU time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(libraries), prepend=os.pathsep)
        yield


def _import_all(patch: pytest.MonkeyPatch) -> None:
    patch.delenv("PYTHONPATH", raising=False)
    if PYTHONPATH is not None:
        patch.setenv("PYTHONPATH", PYTHONPATH)


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow for the scripts of one test, in a module with `servers_only`."""
    _import_all(monkeypatch)


@pytest.fixture(scope="session")
def pair(state_home: Path, backend: LocalBackend) -> Iterator[str]:
    """A cluster of two tasks that tests leave as it is."""
    with pytest.MonkeyPatch.context() as patch:
        _import_all(patch)
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
        code = backend.scripts.run(name, Script(path=path, arguments=arguments, **options)).code
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str, str], subprocess.Popen[str]]]:
    """Start a client of its own that runs a script, with TensorFlow 1 if any; none is left at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, text: str) -> subprocess.Popen[str]:
        path = tmp_path / f"own_script_{len(started)}.py"
        path.write_text(text)
        command = [sys.executable, "-c", CLIENT, name, str(path), str(int("tensorflow" in text))]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        started.append(subprocess.Popen(command, text=True, bufsize=1, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
