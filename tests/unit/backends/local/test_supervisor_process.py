"""The process of a supervisor, before it has a cluster and after."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.backends import interpreter
from tfk8s.backends.local import state, supervisor_client
from tfk8s.backends.local.supervision import supervisor_process
from tfk8s.backends.local.supervision.supervisor_process import SupervisorProcess
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.errors import ClusterError

pytestmark = pytest.mark.programs

# Writes its orders and its cluster to the log, and answers; without orders, it ends.
OBEDIENT = """
import os, socket
connection = socket.socket(fileno=FD)
head, descriptors, _, _ = socket.recv_fds(connection, 4, 1)
if head:
    text = connection.recv(int.from_bytes(head, "big")).decode()
    os.write(descriptors[0], (text + os.environ["VARIABLE"]).encode())
    connection.send(b"{}")
"""
BROKEN = "raise SystemExit('no module named tfk8s')"
RECORD: Any = SimpleNamespace(id="x1", name="demo")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, OBEDIENT)


def runs(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have the processes of supervisors run a program."""

    def command(*given: str) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", text.replace("FD", given[2]).replace("VARIABLE", CLUSTER_ID_VARIABLE)]

    monkeypatch.setattr(interpreter, "command", command)


@pytest.fixture
def folder(tmp_path: Path) -> state.Folder:
    (tmp_path / "demo").mkdir()
    return state.Folder(tmp_path / "demo")


def has_ended(process: SupervisorProcess) -> bool:
    return polling.wait_until(lambda: not process.lives(), "the process to end", 10)


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("leased", [True, False])
@pytest.mark.parametrize("is_early", [True, False])
def test_a_supervisor_keeps_the_connection_of_a_lease(folder: state.Folder, leased: bool, is_early: bool) -> None:
    early = SupervisorProcess(RECORD.id) if is_early else None
    connection = supervisor_client.start(folder, RECORD, leased=leased, early=early)
    assert (connection is not None) is leased
    if connection:
        with connection:
            assert not connection.get_inheritable()  # no child of `run` outlives it with the lease
    orders = json.dumps({"folder": str(folder.path), "leased": leased})
    assert folder.supervisor_log.read_text() == f"{orders}x1"


@pytest.mark.usefixtures("program")
def test_an_early_process_without_a_cluster_ends() -> None:
    with supervisor_process.started_early():
        with supervisor_process.early() as process:
            assert process
            assert process.lives()
        assert not process.lives()
        with supervisor_process.early() as another:
            assert another is None


@pytest.mark.usefixtures("program")
def test_an_early_process_that_nobody_takes_ends_with_the_command() -> None:
    made: list[SupervisorProcess] = []
    with supervisor_process.started_early(), supervisor_process.early() as process:
        assert process
        made.append(process)
    assert not made[0].lives()


@pytest.mark.usefixtures("program")
def test_an_early_process_with_a_cluster_stays(folder: state.Folder) -> None:
    with supervisor_process.started_early():
        with supervisor_process.early() as process, open(os.devnull, "w") as log:
            assert process
            connection = process.supervise(folder.path, log.fileno(), leased=False)
        with connection:
            assert connection.recv(64) == b"{}"
        assert has_ended(process)


def test_an_early_process_that_has_ended_counts_as_none(monkeypatch: pytest.MonkeyPatch, folder: state.Folder) -> None:
    runs(monkeypatch, BROKEN)
    process = SupervisorProcess(RECORD.id)
    assert has_ended(process)
    with pytest.raises(ClusterError, match="no module named tfk8s"):  # as another process says
        supervisor_client.start(folder, RECORD, early=process)
    process = SupervisorProcess(RECORD.id)
    assert has_ended(process)
    runs(monkeypatch, OBEDIENT)
    supervisor_client.start(folder, RECORD, early=process)
    assert folder.supervisor_log.read_text().endswith("x1")
    monkeypatch.setattr(supervisor_process, "SupervisorProcess", lambda _: process)
    with supervisor_process.started_early(), supervisor_process.early() as early:
        assert early is None


def test_the_output_of_a_broken_supervisor_is_the_reason(monkeypatch: pytest.MonkeyPatch, folder: state.Folder) -> None:
    runs(monkeypatch, BROKEN)
    with pytest.raises(ClusterError, match="no module named tfk8s"):
        supervisor_client.start(folder, RECORD)
