"""Tests of kind clusters with a program `kind` that only records its arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.command_line import Run

from tfk8s.features.images import command as images_cli
from tfk8s.features.images import kind, package_data

pytest_plugins = ("fakes.command_line",)
pytestmark = pytest.mark.programs

# Prints the contents of the files beside it, as kind would.
PROGRAM = """\
#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >>calls
case "$1 $2" in
    "version "*) cat version ;;
    "get clusters") [ -e broken ] && { echo "Cannot connect to the Docker daemon" >&2; exit 1; }; cat clusters ;;
    "delete cluster") [ -e stops ] && { rm stops; echo "container state improper: stopped" >&2; exit 1; }; true ;;
    "create cluster") echo "Creating cluster ..."; exit "$(cat code)" ;;
esac
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program's folder. The cluster "test" exists, and no image is built."""
    for name, text in {"version": "kind v0.33.0 go1.26\n", "clusters": "test\n", "code": "0", "kind": PROGRAM}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "kind").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("KIND_NODE_IMAGE", raising=False)
    monkeypatch.setattr("tfk8s.features.images.here.built", lambda kind: None)
    return tmp_path


def calls(program: Path) -> list[str]:
    return (program / "calls").read_text().splitlines()


def test_up(run: Run, program: Path) -> None:
    code, out, err = run("kind", "up")
    assert (code, out) == (0, 'kind cluster "tfk8s" is up\n')
    assert err.splitlines() == [
        "the nodes pull images from registries; to use your own: tfk8s image build, then tfk8s image load",
        "test whether NetworkPolicy is enforced: tfk8s doctor --context kind-tfk8s --image IMAGE",
        "start a cluster: tfk8s up --context kind-tfk8s FILE",
    ]
    config = package_data.path("kind-config.yaml")
    assert calls(program)[2:] == [f"create cluster --name tfk8s --config {config} --wait 120s"]


def test_up_with_another_node_image(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIND_NODE_IMAGE", "localhost/node:1")
    assert run("kind", "up", "--name", "mine")[0] == 0
    assert calls(program)[-1].startswith("create cluster --name mine ")
    assert calls(program)[-1].endswith(" --image localhost/node:1")


def test_up_rejects_an_existing_name(run: Run, program: Path) -> None:
    code, out, err = run("kind", "up", "--name", "test")
    assert (code, out) == (2, "")
    assert err.startswith('error: kind cluster "test" already exists\n  = help: use it (kubectl config use-context')
    assert not any(line.startswith(("create", "delete")) for line in calls(program))


def test_failed_cluster_is_deleted(run: Run, program: Path) -> None:
    (program / "code").write_text("1")
    code, out, err = run("kind", "up")
    assert (code, out) == (1, "")
    assert err == 'error: kind could not create cluster "tfk8s"; its messages are above\n'
    assert calls(program)[-1] == "delete cluster --name tfk8s"


@pytest.mark.parametrize("version", ["kind v0.23.0 go1.21.10 linux/amd64\n", ""])
def test_old_kind_is_rejected(run: Run, program: Path, version: str) -> None:
    (program / "version").write_text(version)
    code, _, err = run("kind", "up")
    assert code == 2
    assert "does not enforce NetworkPolicy" in err
    assert "install kind 0.24 or newer" in err


def test_down_without_an_engine(run: Run, program: Path) -> None:
    (program / "broken").touch()
    code, _, err = run("kind", "down", "--name", "test")
    assert code == 1
    assert err.startswith(
        "error: `kind get clusters` failed: Cannot connect to the Docker daemon\n  = help: start Docker"
    )


def test_kind_is_not_installed(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = run("kind", "up")
    assert code == 2
    assert err.startswith("error: the program `kind` is not installed\n  = help: install it: https://kind.sigs")


def test_down(run: Run, program: Path) -> None:
    assert run("kind", "down", "--name", "test") == (0, 'kind cluster "test" is down\n', "")
    assert calls(program) == ["get clusters", "delete cluster --name test"]


def test_down_again_after_a_container_that_ended_by_itself(run: Run, program: Path) -> None:
    (program / "stops").touch()
    assert run("kind", "down", "--name", "test") == (0, 'kind cluster "test" is down\n', "")
    assert calls(program)[1:] == ["delete cluster --name test"] * 2


@pytest.mark.parametrize("arguments", [["kind", "down"], ["image", "load"]])
def test_missing_cluster(run: Run, program: Path, arguments: list[str]) -> None:
    assert run(*arguments) == (
        2,
        "",
        (
            'error: there is no kind cluster "tfk8s"; the only kind cluster is test\n'
            "  = help: create it with: tfk8s kind up --name tfk8s\n"
        ),
    )


def test_image_load_sends_an_archive(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        def save(self, image, file) -> None:
            file.write(b"tar")

    monkeypatch.setattr("tfk8s.features.images.here.Engine", Engine)
    code, out, err = run("image", "load", "python:3", "--name", "test")
    assert (code, out) == (0, "docker.io/library/python:3\n")
    assert err.splitlines()[0] == 'loading python:3 (0.00 GB) into the nodes of "test"'
    words = calls(program)[-1].split()
    assert (words[:2], words[3:]) == (["load", "image-archive"], ["--name", "test"])
    assert not Path(words[2]).exists()


def test_default_name_is_in_the_config_file() -> None:
    assert f"\nname: {images_cli.CLUSTER}\n" in package_data.path("kind-config.yaml").read_text()
    assert kind.context("x") == "kind-x"
