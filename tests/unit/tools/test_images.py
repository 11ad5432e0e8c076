"""Images: their names and recipes, and what is said where a Docker engine refuses."""

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
from fakes.backend import Run

from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.tools import images, package_data
from tfk8s.version import __version__

pytest_plugins = ("fakes.command_line",)

REPOSITORY = Path(__file__).parents[3]
CPU = f"tfk8s/cpu:2.21.0-{__version__}"


# ---- names ---------------------------------------------------------------------------------------------------------


def test_a_name_has_both_versions() -> None:
    assert images.reference("cpu") == CPU
    with pytest.raises(InvalidInput, match='there is no image "tpu"'):
        images.reference("tpu")


@pytest.mark.parametrize(
    ("image", "name", "tag"),
    [("a/b:1", "a/b", "1"), ("a/b", "a/b", ""), ("h:5000/a", "h:5000/a", ""), ("h:5000/a:1", "h:5000/a", "1")],
)
def test_tags(image: str, name: str, tag: str) -> None:
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


# ---- recipes -------------------------------------------------------------------------------------------------------


def test_what_is_shipped_is_there_in_a_checkout_and_in_the_wheel() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name, place in included.items():
        assert package_data.path(name) == REPOSITORY / name
        assert place == f"tfk8s/shipped/{name}"
        assert (REPOSITORY / name).exists()


def test_all_images_have_the_same_tensorflow() -> None:
    assert {images.tensorflow_version(kind) for kind in images.KINDS} == {"2.21.0"}


@pytest.mark.parametrize("kind", sorted(images.KINDS))
def test_recipes_run_as_nobody_and_pin_what_they_install(kind: str) -> None:
    folder = REPOSITORY / "images" / kind
    recipe = (folder / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE_IMAGE=python:\d+\.\d+\.\d+-slim-\w+$", recipe, re.MULTILINE)
    assert recipe.count("\nFROM ${BASE_IMAGE}") == 2
    assert "\nUSER 65532:65532\n" in recipe
    assert f'title="tfk8s/{kind}"' in recipe
    for line in (folder / "requirements.txt").read_text().splitlines():
        assert line == "-r ../requirements.txt" or re.fullmatch(r"[a-z0-9-]+==[\w.]+", line), line
    assert "libclang" not in (REPOSITORY / "images" / "requirements.txt").read_text().partition("\n")[2]


def test_the_gpu_s_recipe_is_the_cpu_s_with_other_packages_and_the_driver_s_place() -> None:
    gpu, cpu = ((REPOSITORY / "images" / kind / "Dockerfile").read_text() for kind in ("gpu", "cpu"))
    steps = [line for line in gpu.replace("gpu", "cpu").splitlines() if not re.search("^#|description", line)]
    assert [line for line in steps if line not in cpu.splitlines()] == [
        "ENV HOME=/tmp LD_LIBRARY_PATH=/usr/local/nvidia/lib64 NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ]


def test_slim_takes_out_what_nobody_needs_at_run_time(tmp_path: Path) -> None:
    stays = ["tensorflow/python/ops.py", "tensorflow/libtensorflow_cc.so.2", "numpy/core.py"]
    goes = ["tensorflow/include/tensor.h", "numpy/tests/test_core.py"]
    for name in (*stays, *goes):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("no library")
    metadata = tmp_path / "tensorflow_cpu-2.21.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: tensorflow-cpu\nRequires-Dist: libclang>=13.0.0\nRequires-Dist: numpy>=1.26.0\n\nText\n")
    runpy.run_path(str(REPOSITORY / "images" / "slim.py"))["main"](tmp_path)
    assert [name for name in (*stays, *goes) if (tmp_path / name).exists()] == stays
    assert metadata.read_text() == "Name: tensorflow-cpu\nRequires-Dist: numpy>=1.26.0\n\nText\n"


# ---- the engine ----------------------------------------------------------------------------------------------------


class FakeDocker:
    """Docker's client; has the image CPU, and says what it is told to."""

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
    made = FakeDocker()
    monkeypatch.setattr(docker, "from_env", lambda timeout: made)
    return made


def test_build_tries_what_it_has_built(run: Run, fake: FakeDocker) -> None:
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


def test_a_build_that_fails_shows_its_end(run: Run, fake: FakeDocker) -> None:
    fake.events = [*({"stream": f"line {number}\n"} for number in range(40)), {"error": "pip returned 1"}]
    code, out, err = run("image", "build", "server", "--tag", "mine/server:1")
    assert (code, out) == (1, "")
    assert 'error: image "mine/server:1" can\'t be built: pip returned 1\nline 25\n' in err


def test_an_image_that_does_not_work_is_an_error_and_its_container_is_removed(run: Run, fake: FakeDocker) -> None:
    fake.code = 1
    code, out, err = run("image", "build")
    assert (code, out) == (1, "")
    assert err == f'error: image "{CPU}" does not work:\na session computed 238\n'
    assert fake.calls[-1] == ("removed",)


def test_push_gives_the_image_s_tag_to_a_repository_without_one(run: Run, fake: FakeDocker) -> None:
    fake.events = [{"status": "Preparing", "id": "a"}, {"status": "Pushed", "id": "a"}]
    code, out, err = run("image", "push", "cpu", "ghcr.io/team/tensorflow")
    assert (code, out, err) == (0, f"ghcr.io/team/tensorflow:2.21.0-{__version__}\n", "layer a: Pushed\n")
    assert fake.calls == [("tag", "ghcr.io/team/tensorflow", f"2.21.0-{__version__}")]


def test_a_registry_that_refuses(run: Run, fake: FakeDocker) -> None:
    fake.events = [{"error": "denied"}]
    assert run("image", "push", "cpu", "ghcr.io/team/tensorflow:1") == (
        1, "", "error: \"ghcr.io/team/tensorflow:1\" can't be pushed: denied\n  = help: docker login ghcr.io\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("image", "advice"), [("server", "tfk8s image build server"), ("python:3", "docker pull python:3")]
)
def test_an_image_that_is_not_there(run: Run, fake: FakeDocker, image: str, advice: str) -> None:
    code, _, err = run("image", "push", image, "ghcr.io/team/x")
    assert code == 2
    assert err.startswith("error: the Docker engine has no image ")
    assert err.endswith(f"= help: {advice}\n")


def test_an_image_as_an_archive(fake: FakeDocker) -> None:
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
        "error: no Docker engine answers here: Connection refused\n  = help: start one (Docker Desktop"
    )
    assert images.built("cpu") is None


def test_what_an_engine_refuses_is_said_in_its_words(monkeypatch: pytest.MonkeyPatch, fake: FakeDocker) -> None:
    def refuse(image: str, **_: object) -> None:
        raise docker.errors.APIError("500", SimpleNamespace(status_code=500), "no space left on device")

    monkeypatch.setattr(fake, "run", refuse)
    with pytest.raises(ClusterError, match="the Docker engine refuses: no space left on device"):
        images.Engine().smoke_test(CPU)


def test_without_a_subcommand_there_is_help(run: Run) -> None:
    code, out, err = run("image")
    assert (code, err) == (0, "")
    assert "  build  Build an image with TensorFlow, and try it.\n" in out
