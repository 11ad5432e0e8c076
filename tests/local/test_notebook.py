"""Notebooks on a cluster of this machine: JupyterLab, and a kernel, as a user has them."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from clusters import is_ready, may_mount, pids, start_tfk8s, wait_for, wait_until_gone
from job_files import job_file
from notebooks import BUSY, GRAPH, Kernel, kernel

from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.spec import Task
from tfk8s.core.storage.volumes import Volume

pytestmark = pytest.mark.usefixtures("notebooks_cluster")

NAME = "notebooks"
RESTARTED = (
    "TaskRestarted: worker/1 was restarted (killed by SIGKILL): sessions opened before are lost, "
    "and variables if it kept any"
)
ADVICE = "tfk8s.session(recover=…) opens a new session and restores a checkpoint; "


@pytest.fixture(scope="module")
def ckpt(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    """A volume, which is mounted where this machine allows that."""
    folder = tmp_path_factory.mktemp("volume")
    return Volume(path=str(folder / "place"), folder=str(folder / "ckpt"), local_mount=may_mount())


@pytest.fixture(scope="module")
def notebooks_cluster(state_home: Path, backend: LocalBackend, ckpt: Volume) -> Iterator[None]:
    backend.apply(job_file(NAME, worker=2, ps=1, volumes=(ckpt,)))
    wait_for(backend, NAME, is_ready)
    yield
    backend.delete(NAME)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory, notebooks_cluster: None) -> Iterator[Kernel]:
    """A kernel with a session on the cluster."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "helper.py").write_text("value = 7")
    with kernel(folder, NAME, local=True) as started:
        assert started.run(GRAPH).text == "238.0\n"
        yield started


def test_cell_shows_the_panel(notebook: Kernel) -> None:
    panel = notebook.run("cluster").html
    assert "<caption>notebooks (local): Ready, 3/3 tasks ready</caption>" in panel
    assert re.findall(r"<tr><td[^>]*>(.*?)<", panel) == ["worker/0", "worker/1", "ps/0"]


def test_interrupt_ends_a_step_and_the_session_goes_on(notebook: Kernel) -> None:
    assert notebook.run(BUSY, notebook.interrupt).error == (
        f"{'-' * 75}\n"
        "KeyboardInterrupt                         Traceback (most recent call last)\n"
        "Cell In[*], line 1\n"
        f"----> 1 {BUSY}\n"
        "\n"
        "KeyboardInterrupt: "
    )
    cell = notebook.run("float(session.run(total))")
    assert cell.text == "238.0", cell.error


def test_cell_names_the_lost_task_without_the_lines_of_tfk8s(notebook: Kernel, backend: LocalBackend) -> None:
    pid = pids(backend.observe(NAME))[Task("worker", 1)]
    cell = notebook.run(BUSY, lambda: os.kill(pid, signal.SIGKILL))
    *place, message = cell.error.splitlines()[2:6]
    assert place == ["Cell In[*], line 1", f"----> 1 {BUSY}", ""]
    # A loaded machine judges the step when the task is back.
    assert message in ("TaskLost: worker/1 was lost: killed by SIGKILL", RESTARTED)
    assert ADVICE in cell.error
    wait_for(backend, NAME, is_ready)
    again = notebook.run("with tfk8s.session(graph=graph) as session: print(session.run(total))")
    assert (again.text, again.error) == ("238.0\n", "")


def test_kernel_has_the_surroundings_of_a_script(notebook: Kernel) -> None:
    cell = notebook.run(
        "import os, helper\n"
        "with tf.compat.v1.Session(os.environ['TFK8S_TARGET'], graph=graph) as session:\n"
        "    print(session.run(total), helper.value, os.environ['TF_CPP_MIN_LOG_LEVEL'])\n"
        "tf.compat.v1.Session('grpc://localhost:2', graph=graph)"
    )
    assert cell.text == "238.0 7 1\n", cell.error
    assert "InvalidInput: no TensorFlow server answers at localhost:2: " in cell.error  # without IPv6, another reason
    assert "TFK8S_TARGET is the master's address" in cell.error


def test_kernel_has_the_volumes_of_a_script(notebook: Kernel, ckpt: Volume) -> None:
    Path(ckpt.folder or "", "step").write_text("7")
    place = f"{ckpt.path!r}" if ckpt.local_mount else f"tfk8s.path({ckpt.path!r})"
    cell = notebook.run(f"print(open({place} + '/step').read(), tfk8s.path({ckpt.path!r}))")
    assert cell.text == f"7 {ckpt.folder}\n", cell.error


def test_command_serves_a_notebook_and_leaves_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "my notebook.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    process = start_tfk8s(
        "notebook", "--no-browser", "--local", NAME, "my notebook.ipynb",
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
    )  # fmt: skip
    request.addfinalizer(process.communicate)
    request.addfinalizer(process.kill)  # first
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    match = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)lab/tree/my%20notebook\.ipynb\?token=(\w+)", url)
    assert match, url
    address, token = match.groups()

    def ask(method: str, path: str, body: str = "") -> dict[str, object]:
        headers = {"Authorization": f"token {token}"}
        return urllib3.request(method, f"{address}api/{path}", headers=headers, body=body, timeout=60).json()

    assert urllib3.request("GET", f"{address}api/kernels").status == 403
    assert ask("GET", "kernelspecs")["default"] == "python3"
    identity = ask("POST", "kernels", "{}")["id"]
    name = str(identity).encode()
    kernels = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if name in _content(path)]
    assert kernels
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    for pid in kernels:
        wait_until_gone(pid)
    assert list((tmp_path / "temporary").iterdir()) == []


SLOW = """
import json, os, pathlib, socket, time
server = socket.socket()
server.bind(("127.0.0.1", 0))
port = server.getsockname()[1]
runtime = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"])
runtime.mkdir()
(runtime / "jpserver-1.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}/", "port": port, "token": ""}))
time.sleep(1)
server.listen()
while True:
    server.accept()
"""


def test_the_address_is_printed_when_the_page_can_be_opened(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "jupyterlab.py").write_text(SLOW)
    process = start_tfk8s("notebook", "--no-browser", "--local", NAME, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    request.addfinalizer(process.communicate)
    request.addfinalizer(process.terminate)  # first
    assert process.stdout is not None
    url = urllib3.util.parse_url(process.stdout.readline().strip())
    socket.create_connection((url.host, url.port), 60).close()


def test_jupyterlab_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "jupyterlab.py").write_text("import sys; sys.exit(5)")
    (tmp_path / "temporary").mkdir()
    environment = {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path / "temporary")}
    process = start_tfk8s("notebook", "--local", NAME, env={**os.environ, **environment})
    assert process.communicate(timeout=60) == (
        "",
        "error: JupyterLab ended with exit code 5 before it listened: its messages are above\n",
    )
    assert process.returncode == 1
    assert list((tmp_path / "temporary").iterdir()) == []


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""
