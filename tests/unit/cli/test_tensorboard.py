"""What `tfk8s tensorboard` refuses for every backend."""

from __future__ import annotations

import socket

import pytest
from fakes.command_line import Run

pytest_plugins = ("fakes.command_line",)


@pytest.mark.usefixtures("folder", "backend")
def test_refused_arguments(run: Run) -> None:
    for arguments, message in (
        (["nope"], 'there is no cluster "nope"\n  = help: tfk8s up --local FILE starts one'),
        (["mnist"], 'cluster "mnist" has no TensorBoard: its backend is a fake'),
        (["-r", "none.txt", "mnist"], 'there is no file of requirements "none.txt"'),
    ):
        assert run("tensorboard", *arguments) == (2, "", f"error: {message}\n")


@pytest.mark.usefixtures("backend")
def test_port_in_use(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = f"port {port} is in use\n  = help: choose another port, or leave the port out"
        assert run("tensorboard", "--port", str(port), "mnist") == (2, "", f"error: {message}\n")
