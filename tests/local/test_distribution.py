"""The wheel and the source archive are complete, and users need the wheel only."""

import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import hatchling.build
import pytest
from clusters import REPOSITORY, tfk8s
from zips import without_zip

from tfk8s.version import __version__

NAME = f"tfk8s-{__version__}"
TUTORIAL = REPOSITORY / "examples" / "tutorial"


def built(build, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        return folder / build(str(folder))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(hatchling.build.build_wheel, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run the commands of the wheel, away from this repository."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder / "lib")  # noqa: S202 - our own
    return {"cwd": folder, "env": {**os.environ, "PYTHONPATH": str(folder / "lib")}}


def files(*names):
    """Return all files in these folders, or the files themselves, as they are named in the repository."""
    paths = [path for name in names for path in (REPOSITORY / name, *(REPOSITORY / name).rglob("*"))]
    found = [path.relative_to(REPOSITORY) for path in paths if path.is_file() and "__pycache__" not in path.parts]
    return [str(path) for path in found]


def test_the_wheel_is_the_package_with_its_data(wheel):
    package = files("tfk8s")
    shipped = files(*(f"images/{name}" for name in ("cpu", "gpu", "server", "requirements.txt", "slim.py", "smoke.py")))
    information = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    assert sorted(zipfile.ZipFile(wheel).namelist()) == sorted(
        [
            *package,
            *(f"tfk8s/shipped/{name}" for name in (*shipped, "kind-config.yaml")),
            *(f"{NAME}.dist-info/{name}" for name in information),
        ]
    )
    assert "tfk8s/py.typed" in package
    assert {Path(name).suffix for name in package} == {".py", ".typed", ".html", ".css", ".js"}  # the live page


def test_the_source_archive_is_the_repository(tmp_path):
    with tarfile.open(built(hatchling.build.build_sdist, tmp_path)) as archive:
        names = [Path(name).relative_to(NAME) for name in archive.getnames()]
    assert {name.parts[0] for name in names} == {
        *(".gitignore", "PKG-INFO", "pyproject.toml", "Makefile", "kind-config.yaml"),
        *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
        *("bench", "docs", "examples", "helm", "images", "manifests", "tests", "tfk8s", "website"),
    }
    assert not [name for name in names if {"__pycache__", ".venv", "dist"} & set(name.parts)]
    assert Path("tfk8s/py.typed") in names


def test_the_wheel_renders(installed):
    assert tfk8s("--version", **installed).stdout == f"tfk8s {__version__}\n"
    done = tfk8s("render", str(TUTORIAL / "cluster.yaml"), **installed)
    note, _, text = (REPOSITORY / "manifests" / "tutorial.yaml").read_text().partition("\n")
    assert note.startswith("# ")
    assert without_zip(done.stdout) == without_zip(text), done.stderr


def make(*words):
    """Run make as a shell does: a make around the tests leaves its variables behind."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *words], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("base", ["", "python:3.11", "python@sha256:12", "python:3.11@sha256", "@sha256:" + "0" * 64])
def test_a_release_refuses_a_base_image_without_its_digest(base):
    made = make("release-inputs", f"BASE_IMAGE={base}")
    assert made.returncode
    assert made.stdout == f'BASE_IMAGE="{base}" must be NAME@sha256:DIGEST: a tag can be moved\n'


def test_a_release_demands_a_key():
    made = make("release-inputs", "BASE_IMAGE=python@sha256:" + "0" * 64, "KEY=")  # `make release` around it has one
    assert made.returncode
    assert "must be NAME.key, with NAME.pub beside it" in made.stdout
