"""`make test-versions`: a virtual environment for each version of TensorFlow and Python, and the tests in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from versions import features, results

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "build" / "versions"
MINORS = [f"2.{minor}" for minor in range(15, 22)]
OLDEST, NEWEST = MINORS[0], MINORS[-1]
PYTHON = "3.11"
PYTHONS = ["3.12", "3.13", "3.14"]  # with the newest TensorFlow

_LIMIT = 3600.0  # seconds for the tests of an environment
_WITH_IO = "2.16"  # the last TensorFlow for which tensorflow-io has wheels
_TESTS = ["pytest>=8.3", "hypothesis>=6.100"]
_SHOWN = ["tensorflow-cpu", "keras", "numpy"]
_TITLES = {"tensorflow-cpu": "TensorFlow", "keras": "Keras", "numpy": "NumPy"}
_VERSIONS = """
import importlib.metadata, json, platform, sys
found = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps({**found, "Python": platform.python_version()}))
"""
_UV = [sys.executable, "-m", "uv", "--quiet"]


class Unavailable(Exception):
    """An environment can't be made here; the text has the reason."""


def test(selected: Sequence[str]) -> Iterator[tuple[str, results.Result]]:
    """Yield the results of runs with their names: each version, the oldest with the newest, the lowest packages.

    Args:
        selected: the minor versions, such as "2.21" or "2.21-3.12", and "mixed", "lowest" and "io"; none means all.
    """
    for minor, python in [*((minor, PYTHON) for minor in MINORS), *((NEWEST, python) for python in PYTHONS)]:
        if not selected or {minor, f"{minor}-{python}"} & {*selected}:
            yield f"tensorflow {minor} python {python}", _test_one(minor, python)
    if not selected or "mixed" in selected:
        yield from _test_mixed()
    if not selected or "lowest" in selected:
        yield "lowest", _test_lowest()
    if not selected or "io" in selected:
        yield f"io {_WITH_IO}", _test_io()


def _test_one(minor: str, python: str) -> results.Result:
    try:
        with environment(python, "--editable", ".[local]", f"tensorflow-cpu=={minor}.*", *_TESTS) as folder:
            return run(folder, features.TENSORFLOW, versions(folder))
    except Unavailable as reason:
        return results.missing({"TensorFlow": minor, "Python": python}, str(reason))


def _test_mixed() -> Iterator[tuple[str, results.Result]]:
    with (
        environment(PYTHON, "--editable", ".[local]", f"tensorflow-cpu=={OLDEST}.*", *_TESTS) as oldest,
        environment(PYTHON, "--editable", ".[local]", f"tensorflow-cpu=={NEWEST}.*", *_TESTS) as newest,
    ):
        for script, servers in ((oldest, newest), (newest, oldest)):
            found = {"Script": versions(script)["TensorFlow"], "Servers": versions(servers)["TensorFlow"]}
            variables = {"VERSIONS_SCRIPT": str(script), "VERSIONS_SERVERS": str(servers)}
            yield f"mixed {found['Script']}", run(newest, features.MIXED, found, variables)


def _test_io() -> results.Result:
    packages = [f"tensorflow-cpu=={_WITH_IO}.*", "tensorflow-io", "trustme>=1.1"]
    with environment(PYTHON, "--editable", ".[local]", *packages, *_TESTS) as folder:
        return run(folder, features.IO, versions(folder, ["tensorflow-cpu", "tensorflow-io"]))


def _test_lowest() -> results.Result:
    """Test the lowest version of each direct dependency, those of development included."""
    # TensorBoard 2.15 imports pkg_resources, which setuptools has deprecated since 80.9 and dropped in 81.
    with environment(PYTHON, "--resolution", "lowest-direct", "--editable", ".[dev]", "setuptools==79.*") as folder:
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"]
        direct = [*project["dependencies"], *extras["local"], *extras["notebook"], *extras["tensorboard"]]
        names = [dependency.partition(">")[0] for dependency in direct]
        return run(folder, features.LOWEST, versions(folder, names))


@contextmanager
def environment(python: str, *packages: str) -> Iterator[Path]:
    """Make a virtual environment with packages, and delete the environment at the end.

    Raises:
        Unavailable: there is no such interpreter, or the packages have no wheels for the interpreter.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = Path(name)
        _uv("venv", "--clear", "--no-python-downloads", "--python", python, name)
        _uv("pip", "install", "--python", f"{name}/bin/python", *packages)
        yield folder


def _uv(*arguments: str) -> None:
    variables = dict(os.environ)
    if shutil.which("pyenv"):  # its commands python3.12 and so on work for the chosen versions only
        done = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=True)
        variables["PYENV_VERSION"] = ":".join(re.findall(r"^3\.1[1-9]\S*", done.stdout, re.MULTILINE))
    command = [*_UV, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, env=variables)
    if done.returncode:
        reason = re.search(r"^(?:error: |  ╰─▶ )(.*)\Z", done.stderr, re.MULTILINE | re.DOTALL)
        raise Unavailable(" ".join((reason[1] if reason else done.stderr).split()).partition(" hint:")[0])


def versions(folder: Path, names: Sequence[str] = _SHOWN) -> dict[str, str]:
    command = [folder / "bin" / "python", "-c", _VERSIONS, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {_TITLES.get(name, name): version for name, version in json.loads(done.stdout).items()}


def run(
    folder: Path,
    shown: Mapping[str, Sequence[str]],
    found: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
    python: str | None = None,
) -> results.Result:
    """Run the tests of features with what was found in an environment; `python` is another interpreter for pytest."""
    print(", ".join(f"{name} {version}" for name, version in found.items()), flush=True)  # noqa: T201 - progress
    report = folder / "report.xml"
    nodes = [node for nodes in shown.values() for node in nodes]
    # Warnings are errors in the newest versions only: others deprecate what these have no longer.
    options = ["-W", "default", "--disable-warnings", "--tb=short", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    environment = {**os.environ, **(variables or {})}
    environment.pop("VIRTUAL_ENV", None)
    subprocess.run(
        [python or folder / "bin" / "python", "-m", "pytest", *options, *nodes],
        cwd=REPOSITORY,
        env=environment,
        timeout=_LIMIT,
    )
    return results.read_report(report, found, shown)
