"""The process of a supervisor, before it has a cluster and after."""

from __future__ import annotations

import json
import os
import secrets
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
from tfk8s.sessions.forks.processes import marked

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
RECORD: Any = SimpleNamespace(id=secrets.token_hex(8), name="demo", is_leased=False)


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
    return not marked(CLUSTER_ID_VARIABLE, process.id)


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("leased", [True, False])
def test_a_supervisor_keeps_the_connection_of_a_lease(folder: state.Folder, leased: bool) -> None:
    record: Any = SimpleNamespace(id=secrets.token_hex(8), name="demo", is_leased=leased)
    connection = supervisor_client.start(folder, record, SupervisorProcess(record.id))
    assert (connection is not None) is leased
    if connection:
        with connection:
            assert not connection.get_inheritable()  # no child of `run` outlives it with the lease
    assert folder.supervisor_log.read_text() == json.dumps({"folder": str(folder.path)}) + record.id


@pytest.mark.usefixtures("program")
def test_a_process_that_was_started_early_is_taken_once() -> None:
    with supervisor_process.started_early():
        with supervisor_process.waiting() as process:
            assert not has_ended(process)
        assert has_ended(process)  # it got no cluster
        with supervisor_process.waiting() as another:
            assert another.id != process.id


@pytest.mark.usefixtures("program")
def test_a_process_with_a_cluster_stays(folder: state.Folder) -> None:
    with supervisor_process.started_early():
        with supervisor_process.waiting() as process, open(os.devnull, "w") as log:
            connection = process.supervise(folder.path, log.fileno())
        with connection:
            assert connection.recv(64) == b"{}"
    process.reap()


def test_a_process_that_has_ended_is_replaced(monkeypatch: pytest.MonkeyPatch, folder: state.Folder) -> None:
    runs(monkeypatch, BROKEN)
    process = SupervisorProcess(RECORD.id)
    polling.wait_until(lambda: has_ended(process), "the process to end", 10)
    runs(monkeypatch, OBEDIENT)
    supervisor_client.start(folder, RECORD, process)
    assert folder.supervisor_log.read_text().endswith(RECORD.id)


def test_the_output_of_a_broken_supervisor_is_the_reason(monkeypatch: pytest.MonkeyPatch, folder: state.Folder) -> None:
    runs(monkeypatch, BROKEN)
    with pytest.raises(ClusterError, match="no module named tfk8s"):
        supervisor_client.start(folder, RECORD, SupervisorProcess(RECORD.id))
