"""The connection by which a supervisor gets its cluster, and tells the command that it listens."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import socket
from types import SimpleNamespace

import pytest
from fakes.supervisor import make

from tfk8s.backends.local import isolation, state, supervise
from tfk8s.backends.local.loopback import ports
from tfk8s.sessions.forks import processes
from tfk8s.task import ipc


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The connections that hold the lease of a supervisor, which runs in this process, and ends at once."""
    connections: list[socket.socket] = []
    fake = SimpleNamespace(lease=SimpleNamespace(hold=connections.append), run=lambda: None)
    monkeypatch.setattr(os, "fork", lambda: 0)
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(os, "dup2", lambda *_: None)  # the test's own output stays
    monkeypatch.setattr(processes, "drop_signals", lambda: None)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(state.Folder, "read", lambda _: make())
    monkeypatch.setattr(state.Folder, "replace", lambda *_: None)
    monkeypatch.setattr(state.Folder, "write_supervisor", lambda *_: None)
    monkeypatch.setattr(isolation, "enter", lambda **_: make().isolation)
    monkeypatch.setattr(ports, "has_ipv6", lambda: True)
    monkeypatch.setattr(supervise, "WayOut", lambda *_, **__: SimpleNamespace(open=lambda *_, **__: None))
    monkeypatch.setattr(supervise, "Supervisor", lambda *_: fake)
    return connections


def ordered() -> tuple[socket.socket, socket.socket]:
    """Return the command's end of a connection, and the supervisor's, to which the orders have been sent."""
    own, other = socket.socketpair()
    with open(os.devnull, "w") as log:
        ipc.send(own, {"folder": "/nowhere"}, [log.fileno()])
    return own, other


@pytest.mark.parametrize("leased", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_only_a_leased_supervisor_keeps_the_connection(
    held: list[socket.socket], monkeypatch: pytest.MonkeyPatch, leased: bool, is_there: bool
) -> None:
    monkeypatch.setattr(state.Folder, "read", lambda _: dataclasses.replace(make(), is_leased=leased))
    own, ready = ordered()
    if not is_there:  # the command was killed during the start
        own.close()
    supervise.main(ready.detach())
    assert len(held) == leased
    if is_there:
        assert own.recv(64) == b"{}"
        own.setblocking(False)
        if leased:
            with pytest.raises(BlockingIOError):
                own.recv(64)
        else:
            assert own.recv(64) == b""
        own.close()
    for connection in held:
        assert connection.recv(64) == b""
        connection.close()


def test_a_refusal_reaches_the_command(held: list[socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise isolation.Refused("others can connect", "use a namespace")

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(isolation, "enter", refuse)
    monkeypatch.setattr(os, "_exit", leave)
    own, ready = ordered()
    with own:
        with pytest.raises(SystemExit, match="1"):
            supervise.main(ready.detach())
        assert json.loads(own.recv(4096)) == {"error": "others can connect", "help": "use a namespace"}
    assert held == []


@pytest.mark.parametrize("is_there", [True, False])
def test_a_process_without_a_cluster_ends(
    held: list[socket.socket], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setattr(supervise, "PATIENCE", 0.01)
    own, ready = socket.socketpair()
    if not is_there:
        own.close()
    supervise.main(ready.detach())
    if is_there:
        assert own.recv(64) == b""
        own.close()
    assert held == []
