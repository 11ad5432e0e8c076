"""The process that forwards to a master, and its owner's side."""

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
from tfk8s.sessions.task_events import lost, read_events
from tfk8s.testing import FakeBackend

EVENT = lost("worker/1", "evicted")
PRINTS = "import sys; print({!r}, flush=True); sys.stdin.read()"
# Prints an address, a line, and then its input.
ECHOES = "import sys; print('grpc://127.0.0.1:1', {!r}, sep='\\n', flush=True); print(input(), flush=True)"


@pytest.mark.programs
def test_owner_gets_events_and_messages(caplog: pytest.LogCaptureFixture) -> None:
    owned = Sidecar([sys.executable, "-c", ECHOES.format(EVENT.to_line().decode().strip())])
    assert owned.target == "grpc://127.0.0.1:1"
    assert os.getsid(owned.pid) == owned.pid, "Ctrl-C of a terminal would reach it"
    owned.abort_calls("worker/1 was “lost”")
    assert read_events(owned.events) == [EVENT]
    polling.wait_until(lambda: caplog.messages, "the message", 60)
    owned.close()
    assert caplog.messages == ["worker/1 was “lost”"]
    with pytest.raises(ProcessLookupError):
        os.kill(owned.pid, 0)


@pytest.mark.programs
def test_sidecar_that_does_not_end_is_killed() -> None:
    hanging = "import time; print('grpc://', flush=True); time.sleep(60)"
    owned = Sidecar([sys.executable, "-c", hanging], end_timeout=0.01)
    owned.close()
    with pytest.raises(ProcessLookupError):
        os.kill(owned.pid, 0)


@pytest.mark.programs
@pytest.mark.parametrize(
    ("text", "words"), [(PRINTS.format("there is no cluster"), "there is no cluster"), ("", "no reason given")]
)
def test_reason_of_a_failed_start_is_reported(text: str, words: str) -> None:
    with pytest.raises(ClusterError) as caught:
        Sidecar([sys.executable, "-c", text])
    assert str(caught.value) == f"sessions of this process can't reach the cluster: {words}"


class Owner:
    """Standard input: connects to the printed address, and then has calls aborted."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.answer = b""

    def __iter__(self) -> Iterator[str]:
        port = int(self._capsys.readouterr().out.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
            self.answer = stream.recv(3)
            yield json.dumps("worker/1 was lost")


def test_connections_are_forwarded_to_the_master(
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


def test_missing_cluster_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sidecar, "choose", lambda where: FakeBackend())
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    sidecar.main(json.dumps({}), "mnist")
    assert 'there is no cluster "mnist"' in capsys.readouterr().out


def test_reason_of_several_lines_is_printed_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: BackendOptions) -> None:
        raise ClusterError("the API server refuses: <html>\n <p>log in\n")

    monkeypatch.setattr(sidecar, "choose", refuse)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    sidecar.main(json.dumps({}), "mnist")
    assert capsys.readouterr().out == "the API server refuses: <html> <p>log in\n"
