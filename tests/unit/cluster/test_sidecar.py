"""The process that carries a loopback address' connections, and its owner's side."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator

import pytest
from job_files import job_file

from tfk8s import polling
from tfk8s.backends.options import BackendOptions
from tfk8s.cluster import sidecar
from tfk8s.cluster.sidecar import Sidecar
from tfk8s.errors import ClusterError
from tfk8s.testing import FakeBackend

SAYS = "import sys; print({!r}, flush=True); sys.stdin.read()"
# Says where it listens, of a lost task, and then what it hears.
ECHOES = "import sys; print('grpc://127.0.0.1:1', {!r}, sep='\\n', flush=True); print(input(), flush=True)"


@pytest.mark.programs
def test_its_owner_hears_where_it_listens_and_what_breaks_and_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    lost = json.dumps({"task": "worker/1", "reason": "evicted"})
    carried = Sidecar([sys.executable, "-c", ECHOES.format(lost)])
    assert carried.target == "grpc://127.0.0.1:1"
    assert os.getsid(carried._process.pid) == carried._process.pid, "where Ctrl-C of a terminal does not reach it"
    carried.end_calls("worker/1 was “lost”")
    assert os.read(carried.news, 1000).decode() == f"{lost}\n"
    polling.wait_until(lambda: caplog.messages, "the message", 60)
    carried.close()
    assert caplog.messages == ["worker/1 was “lost”"]
    assert carried._process.returncode == 0


@pytest.mark.programs
def test_one_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar, "_END_SECONDS", 0.01)
    carried = Sidecar([sys.executable, "-c", "import time; print('grpc://', flush=True); time.sleep(60)"])
    carried.close()
    assert carried._process.returncode == -signal.SIGKILL


@pytest.mark.programs
@pytest.mark.parametrize(
    ("text", "words"), [(SAYS.format("there is no cluster"), "there is no cluster"), ("", "no reason given")]
)
def test_why_it_can_not_listen_is_said(text: str, words: str) -> None:
    with pytest.raises(ClusterError) as caught:
        Sidecar([sys.executable, "-c", text])
    assert str(caught.value) == f"sessions of this process can't reach the cluster: {words}"


class Owner:
    """Standard input, at whose end the process ends; until then it is used, and then says that calls are to end."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.answer = b""

    def __iter__(self) -> Iterator[str]:
        port = int(self._capsys.readouterr().out.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
            self.answer = stream.recv(3)
            yield json.dumps("worker/1 was lost")


def test_it_carries_connections_to_the_master(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend, owner = FakeBackend(job_file()), Owner(capsys)
    asked: list[BackendOptions] = []
    handled: list[object] = []
    monkeypatch.setattr(sidecar, "choose", lambda where: asked.append(where) or backend)
    monkeypatch.setattr(signal, "signal", lambda *handler: handled.append(handler))
    monkeypatch.setattr(sys, "stdin", owner)
    where = BackendOptions(local=False, context="kind-test", namespace="ml")
    sidecar.main(*sidecar.command(where, "mnist")[-2:])
    assert asked == [where]
    assert handled == [(signal.SIGINT, signal.SIG_IGN)]
    assert owner.answer


def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sidecar, "choose", lambda where: FakeBackend())
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    sidecar.main(json.dumps({}), "mnist")
    assert 'there is no cluster "mnist"' in capsys.readouterr().out


def test_a_reason_of_several_lines_is_said_in_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: BackendOptions) -> None:
        raise ClusterError("the API server refuses: <html>\n <p>log in\n")

    monkeypatch.setattr(sidecar, "choose", refuse)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    sidecar.main(json.dumps({}), "mnist")
    assert capsys.readouterr().out == "the API server refuses: <html> <p>log in\n"
