"""Tests of images: names, Dockerfiles, and errors of the Docker engine."""

from __future__ import annotations

import io
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import requests
from fakes.command_line import Run

from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.features.images import here as images
from tfk8s.features.images import package_data
from tfk8s.version import __version__

pytest_plugins = ("fakes.command_line",)

REPOSITORY = Path(__file__).parents[3]
CPU = f"tfk8s/cpu:2.21.0-{__version__}"


# ---- names ---------------------------------------------------------------------------------------------------------


def test_name_has_both_versions() -> None:
    assert images.reference("cpu") == CPU
    with pytest.raises(InvalidInput, match='there is no image "tpu"'):
        images.reference("tpu")


@pytest.mark.parametrize(
    ("image", "name", "tag"),
    [("a/b:1", "a/b", "1"), ("a/b", "a/b", ""), ("h:5000/a", "h:5000/a", ""), ("h:5000/a:1", "h:5000/a", "1")],
)
def test_split_name_and_tag(image: str, name: str, tag: str) -> None:
    assert images.split(image) == (name, tag)


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("python:3", "docker.io/library/python:3"),
        ("tfk8s/cpu:1", "docker.io/tfk8s/cpu:1"),
        ("ghcr.io/team/cpu:1", "ghcr.io/team/cpu:1"),
        ("localhost/cpu:1", "localhost/cpu:1"),
        ("host:5000/cpu", "host:5000/cpu"),
    ],
)
def test_full_names(image: str, full: str) -> None:
    assert images.in_pods(image) == full


# ---- Dockerfiles ---------------------------------------------------------------------------------------------------


def test_data_files_are_in_checkouts_and_in_the_wheel() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name, target in included.items():
        assert package_data.path(name) == REPOSITORY / name
        assert target == f"tfk8s/shipped/{name}"
        assert (REPOSITORY / name).exists()


def test_all_images_have_the_same_tensorflow() -> None:
    assert {images.tensorflow_version(kind) for kind in images.KINDS} == {"2.21.0"}


@pytest.mark.parametrize("kind", sorted(images.KINDS))
def test_dockerfiles_pin_packages_and_run_as_non_root(kind: str) -> None:
    folder = REPOSITORY / "images" / kind
    dockerfile = (folder / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE_IMAGE=python:\d+\.\d+\.\d+-slim-\w+$", dockerfile, re.MULTILINE)
    assert dockerfile.count("\nFROM ${BASE_IMAGE}") == 2
    assert "\nUSER 65532:65532\n" in dockerfile
    assert f'title="tfk8s/{kind}"' in dockerfile
    assert "--require-hashes" in dockerfile


@pytest.mark.parametrize("folder", ["", *sorted(images.KINDS), "tfk8s"])
def test_each_package_of_an_image_has_a_version_and_hashes(folder: str) -> None:
    text = (REPOSITORY / "images" / folder / "requirements.txt").read_text()
    lines = [line for line in text.replace("\\\n", "").splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+", line), line
    assert "libclang" not in text


def test_gpu_dockerfile_equals_cpu_except_for_the_driver() -> None:
    gpu, cpu = ((REPOSITORY / "images" / kind / "Dockerfile").read_text() for kind in ("gpu", "cpu"))
    steps = [line for line in gpu.replace("gpu", "cpu").splitlines() if not re.search("^#|description", line)]
    assert [line for line in steps if line not in cpu.splitlines()] == [
        "ENV HOME=/tmp LD_LIBRARY_PATH=/usr/local/nvidia/lib64 NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ]


def test_slim_deletes_files_without_a_use_at_run_time(tmp_path: Path) -> None:
    kept = ["tensorflow/python/ops.py", "tensorflow/libtensorflow_cc.so.2", "numpy/core.py"]
    deleted = ["tensorflow/include/tensor.h", "numpy/tests/test_core.py"]
    for name in (*kept, *deleted):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("no library")
    metadata = tmp_path / "tensorflow_cpu-2.21.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: tensorflow-cpu\nRequires-Dist: libclang>=13.0.0\nRequires-Dist: numpy>=1.26.0\n\nText\n")
    runpy.run_path(str(REPOSITORY / "images" / "slim.py"))["main"](tmp_path)
    assert [name for name in (*kept, *deleted) if (tmp_path / name).exists()] == kept
    assert metadata.read_text() == "Name: tensorflow-cpu\nRequires-Dist: numpy>=1.26.0\n\nText\n"


# ---- the engine ----------------------------------------------------------------------------------------------------


class FakeDocker:
    """A Docker client with the image CPU and with preset events."""

    def __init__(self, events: list[dict[str, Any]] | None = None, code: int = 0) -> None:
        self.events, self.code = events or [], code
        self.images = self.containers = self.api = self
        self.attrs = {"Size": 1_060_000_000}
        self.calls: list[tuple[Any, ...]] = []

    def ping(self) -> None:
        pass

    def close(self) -> None:
        pass

    def get(self, image: str) -> FakeDocker:
        if image != CPU:
            raise docker.errors.ImageNotFound("no such image")
        return self

    def get_image(self, image: str, chunk_size: int) -> Iterator[bytes]:
        return iter([b"tar", b"ball"])

    def tag(self, *name: str) -> None:
        self.calls.append(("tag", *name))

    def build(self, **settings: Any) -> Iterator[dict[str, Any]]:
        self.calls.append(("build", settings["dockerfile"], settings["tag"], settings["buildargs"]))
        return iter(self.events)

    def push(self, *name: str, **_: object) -> Iterator[dict[str, Any]]:
        return iter(self.events)

    def run(self, image: str, **settings: Any) -> FakeDocker:
        self.calls.append(("run", settings["read_only"], settings["network_mode"], settings["cap_drop"]))
        return self

    def wait(self, timeout: float) -> dict[str, int]:
        return {"StatusCode": self.code}

    def logs(self, **_: object) -> bytes:
        return b"a session computed 238\n"

    def remove(self, force: bool) -> None:
        self.calls.append(("removed",))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    client = FakeDocker()
    monkeypatch.setattr(docker, "from_env", lambda timeout: client)
    return client


def test_build_tests_the_image(run: Run, fake: FakeDocker) -> None:
    fake.events = [{"stream": "Step 1/2 : FROM x\n"}, {"aux": {"ID": "sha256:1"}}]
    code, out, err = run("image", "build", "--base", "local/python:3.11")
    assert (code, out) == (0, f"{CPU}\n")
    assert err.splitlines() == [
        "Step 1/2 : FROM x",
        "a session computed 238",
        f"1.06 GB; for job files: image: docker.io/{CPU}",
    ]
    arguments = {"VERSION": f"2.21.0-{__version__}", "BASE_IMAGE": "local/python:3.11"}
    assert fake.calls == [("build", "cpu/Dockerfile", CPU, arguments), ("run", True, "none", ["ALL"]), ("removed",)]


def test_failed_build_shows_its_last_lines(run: Run, fake: FakeDocker) -> None:
    fake.events = [*({"stream": f"line {number}\n"} for number in range(40)), {"error": "pip returned 1"}]
    code, out, err = run("image", "build", "server", "--tag", "mine/server:1")
    assert (code, out) == (1, "")
    assert 'error: image "mine/server:1" can\'t be built: pip returned 1\nline 25\n' in err


def test_container_of_a_failed_image_test_is_removed(run: Run, fake: FakeDocker) -> None:
    fake.code = 1
    code, out, err = run("image", "build")
    assert (code, out) == (1, "")
    assert err == f'error: image "{CPU}" does not work:\na session computed 238\n'
    assert fake.calls[-1] == ("removed",)


def test_push_uses_the_tag_of_the_image(run: Run, fake: FakeDocker) -> None:
    fake.events = [{"status": "Preparing", "id": "a"}, {"status": "Pushed", "id": "a"}]
    code, out, err = run("image", "push", "cpu", "ghcr.io/team/tensorflow")
    assert (code, out, err) == (0, f"ghcr.io/team/tensorflow:2.21.0-{__version__}\n", "layer a: Pushed\n")
    assert fake.calls == [("tag", "ghcr.io/team/tensorflow", f"2.21.0-{__version__}")]


def test_push_denied_by_the_registry(run: Run, fake: FakeDocker) -> None:
    fake.events = [{"error": "denied"}]
    assert run("image", "push", "cpu", "ghcr.io/team/tensorflow:1") == (
        1, "", "error: \"ghcr.io/team/tensorflow:1\" can't be pushed: denied\n  = help: docker login ghcr.io\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("image", "advice"), [("server", "tfk8s image build server"), ("python:3", "docker pull python:3")]
)
def test_push_of_a_missing_image(run: Run, fake: FakeDocker, image: str, advice: str) -> None:
    code, _, err = run("image", "push", image, "ghcr.io/team/x")
    assert code == 2
    assert err.startswith("error: the Docker engine has no image ")
    assert err.endswith(f"= help: {advice}\n")


def test_save(fake: FakeDocker) -> None:
    file = io.BytesIO()
    images.Engine().save(CPU, file)
    assert file.getvalue() == b"tarball"


@pytest.mark.parametrize(
    "error", [docker.errors.DockerException("Connection refused"), requests.ConnectionError("Connection refused")]
)
def test_no_engine(run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(timeout: int) -> None:
        raise error

    monkeypatch.setattr(docker, "from_env", refuse)
    code, out, err = run("image", "build")
    assert (code, out) == (1, "")
    assert err.startswith(
        "error: no Docker engine responds: Connection refused\n  = help: start Docker (Docker Desktop"
    )
    assert images.built("cpu") is None


def test_rejection_has_the_message_of_the_engine(monkeypatch: pytest.MonkeyPatch, fake: FakeDocker) -> None:
    def refuse(image: str, **_: object) -> None:
        raise docker.errors.APIError("500", SimpleNamespace(status_code=500), "no space left on device")

    monkeypatch.setattr(fake, "run", refuse)
    with pytest.raises(ClusterError, match="the Docker engine rejected the request: no space left on device"):
        images.Engine().smoke_test(CPU)


def test_help_without_a_subcommand(run: Run) -> None:
    code, out, err = run("image")
    assert (code, err) == (0, "")
    assert "  build  Build an image with TensorFlow, and test it.\n" in out
