"""Requests to the supervisor of a local cluster."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from tfk8s import polling
from tfk8s.backends.local import state, supervisor_client
from tfk8s.errors import ClusterError
from tfk8s.sessions.forks import ipc


def answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        ipc.receive(connection)
        ipc.send(connection, {"tasks": []})


@pytest.mark.parametrize(
    ("options", "awaited"),
    [
        ({}, 'the supervisor of cluster "demo" to respond'),
        ({"awaited": "the processes of {} to end"}, 'the processes of cluster "demo" to end'),
    ],
)
def test_a_late_answer_is_announced_once(
    options: dict[str, str],
    awaited: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = state.Folder(tmp_path / "demo")
    folder.path.mkdir()
    readable, late = polling.readable, iter([False, False])
    monkeypatch.setattr(polling, "TELL_SECONDS", -1.0)
    monkeypatch.setattr(polling, "readable", lambda *arguments: next(late, None) is None and readable(*arguments))
    with ipc.listen(folder.control) as listener:
        thread = threading.Thread(target=answer, args=[listener])
        thread.start()
        assert supervisor_client.send_request(folder, {"do": "observe"}, **options)[0] == {"tasks": []}
        thread.join()
    assert caplog.messages == [f"waiting for {awaited}"]


def test_a_supervisor_that_does_not_answer_in_time_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = state.Folder(tmp_path / "demo")
    folder.path.mkdir()
    monkeypatch.setattr(polling, "readable", lambda *_: False)
    with ipc.listen(folder.control), pytest.raises(ClusterError, match=r'^the supervisor of cluster "demo" does not'):
        supervisor_client.send_request(folder, {"do": "observe"}, timeout=0.01)
