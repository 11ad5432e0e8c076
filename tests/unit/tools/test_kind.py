"""kind clusters, made by a program `kind` that only writes down what it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.backend import Run

from tfk8s.cli import images as images_cli
from tfk8s.tools import kind, package_data

pytest_plugins = ("fakes.command_line",)
pytestmark = pytest.mark.programs

# Answers as kind does, with what the files beside it say.
PROGRAM = """\
#!/bin/sh
cd "$(dirname "$0")"
echo "$@" >>asked
case "$1 $2" in
    "version "*) cat version ;;
    "get clusters") [ -e broken ] && { echo "Cannot connect to the Docker daemon" >&2; exit 1; }; cat clusters ;;
    "create cluster") echo "Creating cluster ..."; exit "$(cat code)" ;;
esac
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the program; kind-config.yaml's cluster is not there, and no image is built."""
    for name, text in {"version": "kind v0.33.0 go1.26\n", "clusters": "test\n", "code": "0", "kind": PROGRAM}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "kind").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("KIND_NODE_IMAGE", raising=False)
    monkeypatch.setattr("tfk8s.tools.images.built", lambda kind: None)
    return tmp_path


def asked(program: Path) -> list[str]:
    return (program / "asked").read_text().splitlines()


def test_up(run: Run, program: Path) -> None:
    code, out, err = run("kind", "up")
    assert (code, out) == (0, 'kind cluster "tfk8s" is up\n')
    assert err.splitlines() == [
        "its nodes pull images themselves; `tfk8s image build` and `tfk8s image load` give them one of your own",
        "whether NetworkPolicy is enforced: tfk8s doctor --context kind-tfk8s --image IMAGE",
        "start a cluster in it: tfk8s up --context kind-tfk8s FILE",
    ]
    config = package_data.path("kind-config.yaml")
    assert asked(program)[2:] == [f"create cluster --name tfk8s --config {config} --wait 120s"]


def test_another_node_image(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIND_NODE_IMAGE", "localhost/node:1")
    assert run("kind", "up", "--name", "mine")[0] == 0
    assert asked(program)[-1].startswith("create cluster --name mine ")
    assert asked(program)[-1].endswith(" --image localhost/node:1")


def test_a_name_that_is_taken(run: Run, program: Path) -> None:
    code, out, err = run("kind", "up", "--name", "test")
    assert (code, out) == (2, "")
    assert err.startswith('error: there is a kind cluster "test" already\n  = help: use it (kubectl config use-context')
    assert not any(line.startswith(("create", "delete")) for line in asked(program))


def test_a_cluster_that_can_t_be_made_leaves_nothing(run: Run, program: Path) -> None:
    (program / "code").write_text("1")
    code, out, err = run("kind", "up")
    assert (code, out) == (1, "")
    assert err == 'error: kind could not make cluster "tfk8s": what it said is above\n'
    assert asked(program)[-1] == "delete cluster --name tfk8s"


@pytest.mark.parametrize("version", ["kind v0.23.0 go1.21.10 linux/amd64\n", ""])
def test_a_kind_whose_network_enforces_no_policies(run: Run, program: Path, version: str) -> None:
    (program / "version").write_text(version)
    code, _, err = run("kind", "up")
    assert code == 2
    assert "makes clusters that don't enforce NetworkPolicy" in err
    assert "install kind 0.24 or newer" in err


def test_no_engine_answers_kind(run: Run, program: Path) -> None:
    (program / "broken").touch()
    code, _, err = run("kind", "down", "--name", "test")
    assert code == 1
    assert err.startswith("error: `kind get clusters` fails: Cannot connect to the Docker daemon\n  = help: is Docker")


def test_kind_is_not_installed(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = run("kind", "up")
    assert code == 2
    assert err.startswith("error: the program `kind` is not installed here\n  = help: install it: https://kind.sigs")


def test_down(run: Run, program: Path) -> None:
    assert run("kind", "down", "--name", "test") == (0, 'kind cluster "test" is down\n', "")
    assert asked(program) == ["get clusters", "delete cluster --name test"]


@pytest.mark.parametrize("arguments", [["kind", "down"], ["image", "load"]])
def test_a_cluster_that_is_not_there(run: Run, program: Path, arguments: list[str]) -> None:
    assert run(*arguments) == (
        2, "", 'error: there is no kind cluster "tfk8s"; there is test\n  = help: tfk8s kind up makes one\n',
    )  # fmt: skip


def test_an_image_travels_as_an_archive(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        def save(self, image, file) -> None:
            file.write(b"tar")

    monkeypatch.setattr("tfk8s.tools.images.Engine", Engine)
    code, out, err = run("image", "load", "python:3", "--name", "test")
    assert (code, out) == (0, "docker.io/library/python:3\n")
    assert err.splitlines()[0] == 'loading python:3 (0.00 GB) into the nodes of "test"'
    words = asked(program)[-1].split()
    assert (words[:2], words[3:]) == (["load", "image-archive"], ["--name", "test"])
    assert not Path(words[2]).exists()


def test_the_default_name_is_the_config_file_s() -> None:
    assert f"\nname: {images_cli.CLUSTER}\n" in package_data.path("kind-config.yaml").read_text()
    assert kind.context("x") == "kind-x"
