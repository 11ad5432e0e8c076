"""The interpreter for tasks and scripts: of `--python`, of the active environment, or tfk8s' own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfk8s.backends import interpreter
from tfk8s.backends.local.record import make_record
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput

JOB_FILE = JobFile(name="a", master="w", jobs=(Job(name="w"),))


@pytest.fixture
def environments(tmp_path: Path) -> dict[str, str]:
    """Three environments with interpreters, by the variable that names them: venv, conda and conda's base."""
    for name in ("venv", "conda", "base"):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\nprintf '3\\n10\\n\\n'\n")
        python.chmod(0o755)
        (tmp_path / name / {"venv": "pyvenv.cfg"}.get(name, "conda-meta")).touch()
    return {name: str(tmp_path / name) for name in ("venv", "conda", "base")}


def test_the_active_environment(environments: dict[str, str], tmp_path: Path) -> None:
    venv, conda = ({name: environments[kind]} for name, kind in (("VIRTUAL_ENV", "venv"), ("CONDA_PREFIX", "conda")))
    assert interpreter.script_python({}) == sys.executable
    assert interpreter.script_python(venv) == f"{environments['venv']}/bin/python"
    assert interpreter.script_python({**conda, "CONDA_DEFAULT_ENV": "x"}) == f"{environments['conda']}/bin/python"
    assert interpreter.script_python({**conda, **venv}) == f"{environments['venv']}/bin/python"
    assert interpreter.script_python({**conda, "VIRTUAL_ENV": sys.prefix}) == sys.executable
    assert interpreter.script_python({"VIRTUAL_ENV": str(tmp_path)}) == sys.executable  # there is no interpreter
    assert interpreter.script_python({**conda, "VIRTUAL_ENV": str(tmp_path)}) == f"{environments['conda']}/bin/python"


def test_condas_base_counts_only_if_tfk8s_has_no_tensorflow(
    environments: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {"CONDA_PREFIX": environments["base"], "CONDA_DEFAULT_ENV": "base"}
    monkeypatch.setattr(interpreter, "find_tensorflow", lambda: "/tensorflow")
    assert interpreter.script_python(base) == sys.executable
    monkeypatch.setattr(interpreter, "find_tensorflow", lambda: None)
    assert interpreter.script_python(base) == f"{environments['base']}/bin/python"


def test_names_of_interpreters(environments: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = f"{environments['venv']}/bin/python"
    (tmp_path / "link").symlink_to(own)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{environments['venv']}/bin")
    assert [interpreter.named(name) for name in (own, "venv", "venv/bin/python", "python")] == [own] * 4
    assert interpreter.named("./link") == str(tmp_path / "link")  # a link's folder decides on the packages
    for name in ("absent", "..", "", "venv/absent"):
        with pytest.raises(InvalidInput, match=f'--python: there is no interpreter "{name}"'):
            interpreter.named(name)


@pytest.mark.programs
def test_tensorflow_of_an_interpreter(environments: dict[str, str], tmp_path: Path) -> None:
    python = f"{environments['conda']}/bin/python"
    with pytest.raises(InvalidInput, match=r"is Python 3\.10, and tfk8s needs 3\.11 or later"):
        interpreter.require_tensorflow(python)
    packages = Path(environments["conda"], "lib", "python3.12", "site-packages")
    (packages / "tensorflow").mkdir(parents=True)
    (packages / "tensorflow_cpu-2.17.1.dist-info").mkdir()
    (packages / "tensorflow_datasets-4.9.1.dist-info").mkdir()
    interpreter.require_tensorflow(python)
    assert interpreter.description(python) == f"{python}, TensorFlow 2.17.1"
    elsewhere = tmp_path / "usr" / "bin" / "python3"  # Debian's: packages are not in lib/python3.12/site-packages
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text(f"#!/bin/sh\nprintf '3\\n12\\n{packages}/tensorflow\\n'\n")
    elsewhere.chmod(0o755)
    assert interpreter.tensorflow_folder(str(elsewhere)) == packages / "tensorflow"
    elsewhere.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(InvalidInput, match="TensorFlow is not installed for") as caught:
        interpreter.require_tensorflow(str(elsewhere), interpreter.OTHERS)
    assert "--python" in str(caught.value.help)


@pytest.mark.programs
def test_scripts_of_a_cluster(environments: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("CONDA_PREFIX", environments["conda"])
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "x")
    found = make_record(JOB_FILE, "1d", exposed=False)
    named = make_record(
        JOB_FILE, "1d", exposed=False, python=environments["base"] + "/bin/python", is_python_named=True
    )
    assert (found.python, found.script_python(None)) == (f"{environments['conda']}/bin/python",) * 2
    monkeypatch.setenv("VIRTUAL_ENV", environments["venv"])  # another environment is active
    assert found.script_python(None) == f"{environments['venv']}/bin/python"
    assert (named.script_python(None), named.script_python("/other")) == (named.python, "/other")
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.delenv("CONDA_PREFIX")  # none is
    assert found.script_python(None) == found.python
