"""What `tfk8s notebook` refuses and warns about, and the settings of its kernels."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from fakes.command_line import Run

from tfk8s.api import BackendOptions, connect, find
from tfk8s.cluster.handle import Cluster
from tfk8s.core.spec import Task
from tfk8s.features.notebook import server
from tfk8s.features.notebook.kernel import KernelSettings
from tfk8s.testing import FakeBackend

pytest_plugins = ("fakes.command_line",)

ADDRESSES = """\
apiVersion: tfk8s.dev/v1
name: given
jobs:
  worker: ["10.0.0.1:2222"]
"""


@pytest.mark.usefixtures("folder", "backend")
def test_refused_notebooks(run: Run) -> None:
    Path("data.ipynb").mkdir()
    for file, message in (
        ("train.py", '"train.py" is not a notebook: its name does not end in .ipynb'),
        ("none.ipynb", 'there is no notebook "none.ipynb"\n  = help: leave it out to create one in JupyterLab'),
        ("data.ipynb", 'there is no notebook "data.ipynb"\n  = help: leave it out to create one in JupyterLab'),
    ):
        assert run("notebook", "mnist", file) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("jupyterlab", "JupyterLab is not installed for {}\n  = help: pip install 'tfk8s[notebook]'"),
        ("ipykernel", "JupyterLab is not installed for {}\n  = help: pip install 'tfk8s[notebook]'"),
        (
            "tensorflow",
            "TensorFlow is not installed for {}\n  = help: pip install 'tfk8s[local]', or pip install tensorflow-cpu",
        ),
    ],
)
@pytest.mark.usefixtures("backend")
def test_missing_packages(run: Run, monkeypatch: pytest.MonkeyPatch, module: str, message: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert run("notebook", "mnist") == (2, "", f"error: {message.format(sys.executable)}\n")


@pytest.mark.usefixtures("backend")
def test_port_in_use(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = f"port {port} is in use\n  = help: choose another port, or leave the port out"
        assert run("notebook", "--port", str(port), "mnist") == (2, "", f"error: {message}\n")


def test_unknown_cluster(run: Run, backend: FakeBackend) -> None:
    assert run("notebook", "nope") == (
        2,
        "",
        'error: there is no cluster "nope"\n  = help: tfk8s up --local FILE starts one\n',
    )


def test_tasks_that_do_not_answer(backend: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    backend.unresponsive = {Task("chief", 0), Task("worker", 0), Task("worker", 1)}
    server.require_master(Cluster(backend, "mnist"))
    (message,) = caplog.messages
    assert message.splitlines() == [
        "of 3 tasks, chief/0, worker/0, worker/1 do not answer:",
        "  chief/0   localhost:2222  Connection refused",
        "  worker/0  localhost:2223  Connection refused",
        "  worker/1  localhost:2224  Connection refused",
    ]


def test_kernel_finds_its_cluster(backend: FakeBackend) -> None:
    settings = KernelSettings.of(connect("mnist"), "mnist", tf1=True)
    assert settings == KernelSettings("mnist", BackendOptions(local=True), tf1=True)
    *_, text, file = settings.command()
    assert file == "{connection_file}"
    assert KernelSettings.parse(text) == settings
    assert repr(settings.cluster()) == "<tfk8s.Cluster 'mnist' (local)>"


def test_kernel_finds_servers_at_given_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("given.yaml").write_text(ADDRESSES)
    settings = KernelSettings.of(find("given.yaml", BackendOptions()), "given.yaml", tf1=False)
    assert settings.job_file == str(tmp_path / "given.yaml")
    assert settings.cluster().backend.name == "addresses"
