"""Requests to the supervisor of a local cluster."""

from __future__ import annotations

import signal
import socket
import threading
from pathlib import Path

import pytest

from tfk8s import polling
from tfk8s.backends.local import state, supervisor_client
from tfk8s.backends.local.supervision import requests
from tfk8s.errors import ClusterError
from tfk8s.task import ipc


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
        assert supervisor_client.send_request(folder, requests.Observe(), **options)[0] == {"tasks": []}
        thread.join()
    assert caplog.messages == [f"waiting for {awaited}"]


def test_a_supervisor_that_does_not_answer_in_time_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = state.Folder(tmp_path / "demo")
    folder.path.mkdir()
    monkeypatch.setattr(polling, "readable", lambda *_: False)
    with ipc.listen(folder.control), pytest.raises(ClusterError, match=r'^the supervisor of cluster "demo" does not'):
        supervisor_client.send_request(folder, requests.Observe(), timeout=0.01)


def test_one_sigterm_ends_submit_whose_supervisor_does_not_react(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = state.Folder(tmp_path / "demo")
    folder.path.mkdir()
    waits: list[float] = []

    def readable(_: int, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 1:
            signal.raise_signal(signal.SIGTERM)
        return False

    monkeypatch.setattr(polling, "readable", readable)
    monkeypatch.setattr(supervisor_client.time, "monotonic", lambda: 1000.0 + sum(waits))
    request = requests.RunScript(
        fresh=False, python="python", folder="/", umask=0, arguments=[], progress="/none", environment={}
    )  # fmt: skip
    with ipc.listen(folder.control), pytest.raises(ClusterError, match=r'^the supervisor of cluster "demo" does not'):
        supervisor_client.run(folder, request, [0, 1, 2])
    assert sum(waits) < 30
