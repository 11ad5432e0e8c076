"""Scripts on this machine for a cluster that runs elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import socket
from pathlib import Path

import pytest
from fakes.command_line import Run
from job_files import job_file

from tfk8s.backends import interpreter, local_scripts
from tfk8s.core.script import Outcome, Script
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import InvalidInput
from tfk8s.testing import FakeBackend, change

pytest_plugins = ("fakes.command_line",)


@pytest.fixture
def ports() -> list[int]:
    """Two free ports in a row."""
    while True:
        port = 20000 + 2 * secrets.randbelow(5000)  # below the ephemeral ports
        with contextlib.suppress(OSError), socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 1))
            return [port, port + 1]


def status_at(backend: FakeBackend, port: int) -> ClusterStatus:
    """Return the status of the cluster, whose pods all listen on the same port."""
    for task in ("chief/0", "worker/0"):
        backend.updates.append(change(task, address=f"pod-{task[0]}:{port}"))
        backend.observe("mnist")
    return backend.observe("mnist")


@pytest.mark.programs
def test_a_script_has_the_ports_of_a_single_machine_and_the_masters_variables(
    ports: list[int], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATE", "the shell's")
    backend = FakeBackend(job_file("mnist", chief=1, worker=1))
    status = dataclasses.replace(status_at(backend, ports[0]), variables={"RATE": "1e-4", "OWN": "the file's"})
    path = tmp_path / "script.py"
    path.write_text(
        "import os; from tfk8s.sessions.cluster.cluster_view import ClusterView; "
        "print(*map(os.environ.get, ('RATE', 'OWN', 'TFK8S_TARGET', 'TFK8S_CLUSTER')), sep='\\n'); "
        "view = ClusterView.of(os.environ); view._is_elastic = True; print(view.brings_cluster)"
    )
    script = Script(path=path, environment={"OWN": "the script's"})
    assert local_scripts.run_forwarded(backend, status, script) == Outcome(0)
    rate, own, target, cluster, brings = capfd.readouterr().out.splitlines()
    assert (rate, own, target) == ("1e-4", "the script's", f"grpc://localhost:{ports[0]}")
    assert brings == "False"  # the tasks can't use these addresses
    assert json.loads(cluster) == {"chief": [f"localhost:{ports[0]}"], "worker": [f"localhost:{ports[1]}"]}


class RecordingBackend(FakeBackend):
    """Remembers the tasks that it was asked to connect to."""

    def __init__(self, job_file: JobFile) -> None:
        super().__init__(job_file)
        self.dialed: set[Task] = set()

    def dial(self, name: str, task: Task) -> socket.socket:
        self.dialed.add(task)
        return super().dial(name, task)


@pytest.mark.programs
def test_scripts_here_do_not_connect_to_the_service_of_tf_data(
    ports: list[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = (Job(name="chief", port=ports[0]), Job(name="input", kind="data", tasks=2, port=ports[1]))
    backend = RecordingBackend(job_file("mnist", *jobs))
    status = dataclasses.replace(backend.observe("mnist"), variables={"TFK8S_DATA_SERVICE": "grpc://input-0:2222"})
    path = tmp_path / "script.py"
    path.write_text("")
    assert local_scripts.run_forwarded(backend, status, Script(path=path)) == Outcome(0)
    assert backend.dialed == {Task("chief", 0)}
    assert caplog.messages == [
        "with --here, only datasets on the tasks can use tf.data's service; others wait until Ctrl-C"
    ]


def test_a_port_in_use_is_named(ports: list[int]) -> None:
    backend = FakeBackend(job_file("mnist", chief=1, worker=1))
    with socket.create_server(("127.0.0.1", ports[1])), pytest.raises(InvalidInput) as caught:
        local_scripts.run_forwarded(backend, status_at(backend, ports[0]), Script(path=Path("a.py")))
    assert str(caught.value) == (
        f"port {ports[1]} is in use: with --here, worker/0 is at localhost:{ports[1]}, its address on a single machine"
    )
    assert f"sport = :{ports[1]}" in str(caught.value.help)


def test_a_machine_without_tensorflow(ports: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "find_tensorflow", lambda: None)
    backend = FakeBackend(job_file("mnist", chief=1, worker=1))
    with pytest.raises(InvalidInput, match="TensorFlow is not installed for"):
        local_scripts.run_forwarded(backend, status_at(backend, ports[0]), Script(path=Path("a.py")))


def test_too_many_tasks_are_refused() -> None:
    backend = FakeBackend(job_file("mnist", worker=257))
    with pytest.raises(InvalidInput, match="--here is for at most 256"):
        local_scripts.run_forwarded(backend, backend.observe("mnist"), Script(path=Path("a.py")))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--here"], "--here is for clusters on Kubernetes"),
        (["--here", "--detach"], "--here can't be combined with --detach"),
    ],
)
def test_here_is_refused_on_this_machine(
    run: Run, backend: FakeBackend, folder: Path, arguments: list[str], words: str
) -> None:
    code, _, err = run("submit", *arguments, "mnist", "train.py")
    assert code == 2
    assert err.startswith(f"error: {words}")
