"""Servers that were started elsewhere: supported and refused commands."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job_files import job_file

from tfk8s.backends import local_scripts
from tfk8s.backends.external import ExternalBackend
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import LogOptions, Outcome, Script, ScriptResources
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.status import Phase, TaskStatus
from tfk8s.errors import InvalidInput, NoSuchCluster, TaskUnreachable
from tfk8s.testing import FakeBackend

CHIEF, WORKER = Task("chief", 0), Task("worker", 0)


class Server:
    """Answers each connection, and each heartbeat, as a TensorFlow server does."""

    def __init__(self, task: Task, others: list[Task]) -> None:
        backend = FakeBackend(job_file("x", chief=1, worker=1))
        with backend.dial("x", task) as stream:
            self._answer = stream.recv(1 << 16)
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(stream)
            threading.Thread(target=self._answer_all, args=[stream], daemon=True).start()

    def _answer_all(self, stream: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client is gone, or `end` has closed the stream
            stream.sendall(self._answer)
            while stream.recv(1 << 16):
                stream.sendall(self._answer)

    def end(self) -> None:
        """End as a process does that is killed: it listens no more before its connections end."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self._listener.close()
        for stream in self._open:
            with contextlib.suppress(OSError):  # the client is gone
                stream.shutdown(socket.SHUT_RDWR)
            stream.close()


@pytest.fixture
def servers() -> Iterator[dict[Task, Server]]:
    servers = {task: Server(task, []) for task in (CHIEF, WORKER)}
    yield servers
    for server in servers.values():
        if server.thread.is_alive():
            server.end()


@pytest.fixture
def spec(servers: dict[Task, Server]) -> JobFile:
    jobs = tuple(Job(name=task.job, addresses=(server.address,)) for task, server in servers.items())
    return JobFile(name="there", jobs=jobs, master="chief")


@pytest.fixture
def backend(spec: JobFile) -> ExternalBackend:
    return ExternalBackend(spec)


def test_all_servers_are_probed(backend: ExternalBackend, servers: dict[Task, Server]) -> None:
    status = backend.observe("there")
    assert (status.backend, status.target, status.master) == ("addresses", f"grpc://{servers[CHIEF].address}", CHIEF)
    assert status.tasks == tuple(
        TaskStatus(task=task, phase=Phase.READY, address=server.address) for task, server in servers.items()
    )
    assert backend.clusters() == [status]


def test_a_missing_server_is_named(backend: ExternalBackend, servers: dict[Task, Server]) -> None:
    servers[WORKER].end()
    task = backend.observe("there").tasks[1]
    assert task.phase is Phase.UNKNOWN
    assert task.reason == f"does not answer at {servers[WORKER].address}: Connection refused"
    with pytest.raises(TaskUnreachable):
        backend.dial("there", WORKER)


def test_another_name_is_no_cluster(backend: ExternalBackend) -> None:
    with pytest.raises(NoSuchCluster, match=r'^the job file is that of "there", not of "mnist"$'):
        backend.observe("mnist")


@pytest.mark.parametrize(
    ("do", "verb"),
    [
        (lambda backend, spec: backend.apply(spec), "start"),
        (lambda backend, spec: backend.plan(spec), "start"),
        (lambda backend, spec: backend.scale("there", {"worker": 2}), "scale"),
        (lambda backend, spec: backend.events("there", follow=False), "show the events of"),
        (lambda backend, spec: backend.logs("there", [], LogOptions()), "show the logs of"),
        (lambda backend, spec: backend.inside.execute("there", CHIEF, ["true"]), "run a command beside"),
        (lambda backend, spec: backend.restart("there", None), "restart"),
        (lambda backend, spec: backend.inside.stacks("there", []), "look into"),
        (lambda backend, spec: backend.inside.usage("there", []), "look into"),
        (lambda backend, spec: backend.delete("there"), "remove"),
    ],
)
def test_refused_commands(
    backend: ExternalBackend, spec: JobFile, do: Callable[[ExternalBackend, JobFile], object], verb: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        do(backend, spec)
    assert str(caught.value) == (
        f'tfk8s can\'t {verb} the servers of "there": its job file gives their addresses, '
        "so they were started elsewhere"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"requirements": Path("r.txt")}, "--requirements is for Kubernetes"),
        ({"resources": ScriptResources(gpus=2)}, "--gpus is for Kubernetes"),
        ({"resources": ScriptResources(cpu=Quantity.parse("2"))}, "--cpu and --memory are for Kubernetes"),
    ],
)
def test_options_of_pods_are_refused(backend: ExternalBackend, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        backend.scripts.run("there", Script(path=Path("a.py"), **options))
    assert caught.value.help in (
        "install into that: pip install -r r.txt", "CUDA_VISIBLE_DEVICES=0,1 tfk8s submit …", "leave them out",
    )  # fmt: skip


def test_an_absent_part_is_one_refusal(backend: ExternalBackend) -> None:
    for call in (
        lambda name: backend.detached.start(name, Script(path=Path("a.py"))),
        lambda name: backend.detached.show(name, "script-0a1b2c", LogOptions()),
        lambda name: backend.detached.stop(name, "script-0a1b2c"),
    ):
        with pytest.raises(InvalidInput, match=r"^a script on this machine ends .* --detach is for Kubernetes"):
            call("there")
        with pytest.raises(NoSuchCluster):
            call("mnist")


# ---- running a script ----------------------------------------------------------------------------------------------


@pytest.mark.programs
def test_a_script_has_its_clusters_environment(
    backend: ExternalBackend, servers: dict[Task, Server], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys; print(os.environ['TFK8S_TARGET'], os.environ['no_proxy'], sys.argv); sys.exit(3)"
    )
    assert backend.scripts.run("there", Script(path=script, arguments=("--a", "b"))) == Outcome(3)
    out, err = capfd.readouterr()
    assert out == f"grpc://{servers[CHIEF].address} localhost,127.0.0.1,::1 {[str(script), '--a', 'b']}\n"
    assert err == ""


@pytest.mark.programs
def test_lost_task_is_told_apart_from_exit_code_3(backend: ExternalBackend, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from tfk8s.errors import TaskLost; raise TaskLost('worker/0 was lost')")
    assert backend.scripts.run("there", Script(path=script)) == Outcome(3, task_failed=True)


@pytest.mark.programs
def test_sigterm_reaches_the_script() -> None:
    program = "trap 'exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.01; done"
    assert local_scripts.run_program(["sh", "-c", program], os.environ) == 9


def test_no_terminal_no_foreground(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_terminal(descriptor: int) -> int:
        raise OSError(25, "Inappropriate ioctl for device")

    monkeypatch.setattr(local_scripts.os, "tcgetpgrp", no_terminal)
    assert local_scripts._in_foreground() is False
