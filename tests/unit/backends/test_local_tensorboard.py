"""What TensorBoard on this machine refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from job_files import job_file

from tfk8s.backends import child_process
from tfk8s.backends.foreground_scripts import ForegroundScripts
from tfk8s.errors import InvalidInput, NoSuchCluster
from tfk8s.testing import FakeBackend

EXTRA = "pip install 'tfk8s[tensorboard]'"


def run(folder: str | None = None, requirements: Path | None = None, name: str = "mnist") -> str:
    """Run TensorBoard; return its folder."""
    backend = FakeBackend(job_file())
    scripts = ForegroundScripts(backend.observe, backend.run)
    with scripts.tensorboard(name, folder=folder, requirements=requirements, token="", port=0) as server:
        return server.folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder, and no processes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child_process, "start", lambda *_: None)
    monkeypatch.setattr(child_process, "stop", lambda *_: None)


def test_folder_of_this_machine(tmp_path: Path) -> None:
    for folder in ("", "runs/1"):
        with pytest.raises(InvalidInput) as caught:
            run(folder)
        assert str(caught.value) == f'there is no folder "{folder or "logs"}"'
        assert caught.value.help == "name the folder of the event files: tfk8s tensorboard NAME FOLDER"
        (tmp_path / (folder or "logs")).mkdir(parents=True)
        assert run(folder) == (folder or "logs")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match='there is no folder "file"'):
        run("file")


def test_unknown_cluster() -> None:
    with pytest.raises(NoSuchCluster):
        run(".", name="nope")


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InvalidInput) as caught:
        run(".")
    assert str(caught.value) == f"TensorBoard is not installed for {sys.executable}"
    assert caught.value.help == EXTRA


def test_requirements_are_for_pods() -> None:
    with pytest.raises(InvalidInput) as caught:
        run(".", Path("requirements.txt"))
    expected = "--requirements is for Kubernetes: on this machine TensorBoard runs in tfk8s' own environment"
    assert (str(caught.value), caught.value.help) == (expected, EXTRA)
