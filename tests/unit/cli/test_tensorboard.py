"""What `tfk8s tensorboard` refuses."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from fakes.command_line import Run

pytest_plugins = ("fakes.command_line",)


@pytest.mark.usefixtures("backend")
def test_missing_package(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    message = f"TensorBoard is not installed for {sys.executable}\n  = help: pip install 'tfk8s[tensorboard]'"
    assert run("tensorboard", "mnist") == (2, "", f"error: {message}\n")


@pytest.mark.usefixtures("folder", "backend")
def test_refused_arguments(run: Run) -> None:
    Path("file").touch()
    name_it = "name the folder of the event files: tfk8s tensorboard NAME FOLDER"
    requirements = (
        "--requirements is for Kubernetes: on this machine TensorBoard runs in tfk8s' own environment\n"
        "  = help: pip install 'tfk8s[tensorboard]'"
    )
    for arguments, message in (
        (["nope"], 'there is no cluster "nope"\n  = help: tfk8s up --local FILE starts one'),
        (["mnist"], f'there is no folder "logs"\n  = help: {name_it}'),
        (["mnist", "runs/1"], f'there is no folder "runs/1"\n  = help: {name_it}'),
        (["mnist", "file"], f'there is no folder "file"\n  = help: {name_it}'),
        (["-r", "file", "mnist"], requirements),
    ):
        assert run("tensorboard", *arguments) == (2, "", f"error: {message}\n")


@pytest.mark.usefixtures("backend")
def test_port_in_use(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = f"port {port} is in use\n  = help: choose another port, or leave the port out"
        assert run("tensorboard", "--port", str(port), "mnist") == (2, "", f"error: {message}\n")
