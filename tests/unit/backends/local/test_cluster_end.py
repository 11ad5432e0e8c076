"""The end of a local cluster."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from job_files import job_file

from tfk8s import polling
from tfk8s.backends.local import state
from tfk8s.backends.local.programs import cluster_end
from tfk8s.backends.local.record import make_record
from tfk8s.backends.local.supervision import requests
from tfk8s.task import ipc


def test_a_signal_ends_at_once_what_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[ipc.Message] = []
    record = make_record(dataclasses.replace(job_file("demo", worker=1), grace=30), "1d", exposed=False)

    def supervise(listener: socket.socket) -> None:
        """Answer `observe`, and `stop` once there is a second one."""
        waiting = []
        while len(waiting) < 2:
            connection, _ = listener.accept()
            connection.settimeout(10)
            received.append(ipc.receive(connection)[0])
            if received[-1]["do"] == "observe":
                tasks = [("worker", "Running"), ("evaluator", "Succeeded")]
                tasks = [{"job": job, "index": 0, "phase": phase} for job, phase in tasks]
                snapshot = requests.Snapshot(
                    record=record, tasks=tasks, scripts=[{"name": "", "pid": 7}], idle_since=None, holders=0,
                    isolation="", way_out="", proxy={},
                )  # fmt: skip
                ipc.send(connection, requests.to_message(snapshot))
                connection.close()
            else:
                waiting.append(connection)
        ipc.send(waiting[0], {})
        for connection in waiting:
            connection.close()

    def readable(descriptor: int, seconds: float) -> bool:
        if len(received) == 2 and next(signals, None):  # the client waits for the end
            signal.raise_signal(signal.SIGINT)
            return False
        return original(descriptor, seconds)

    folder, original = state.Folder(tmp_path / "demo"), polling.readable
    signals = iter([signal.SIGINT])  # a second one, before the supervisor has the request, would end the test
    folder.path.mkdir()
    monkeypatch.setattr(state.Folder, "read", lambda _: record)
    monkeypatch.setattr(state.Folder, "supervisor", lambda _: os.getpid())
    monkeypatch.setattr(state.Folder, "id", lambda _: None)
    monkeypatch.setattr(polling, "TELL_SECONDS", -1.0)
    monkeypatch.setattr(polling, "readable", readable)
    with ipc.listen(folder.control) as listener:
        thread = threading.Thread(target=supervise, args=[listener])
        thread.start()
        cluster_end.end(folder, "ends")
        thread.join()
    assert [request["do"] for request in received] == ["observe", "stop", "stop"]
    wait = 'worker/0, script 7 of cluster "demo" to end, at most 30 s; Ctrl-C ends them at once'
    assert caplog.messages[-1] == f"waiting for {wait}"
