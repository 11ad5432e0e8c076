"""The process that sends the files of a program, and process 1, which waits for it."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tfk8s import polling
from tfk8s.core import naming
from tfk8s.core.script import Download
from tfk8s.task import ipc
from tfk8s.task.files import received
from tfk8s.task.stream import channel, file_link, left_files
from tfk8s.task.stream.channel import Channel

POD = {
    "TFK8S_NAME": "demo", "TFK8S_NAMESPACE": "ns", "TFK8S_JOBS": "worker=2", "TFK8S_PORT": "2222",
    "TFK8S_JOB": "worker", "TFK8S_INDEX": "1", naming.FILES_VARIABLE: '{"1": ["left"]}',
}  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_files_follow_the_end_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "left").write_text("a model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(channel, "PORT", free_port())
    process_1, other = socket.socketpair()
    arrived: list[tuple[int, bytes]] = []

    def be_client() -> None:
        connection = polling.wait_until(dial, "the stream to listen", 20)
        one = Channel()
        channel.say_hello(connection, {"script": "run-1", "received": 0})
        one.attach(connection, channel.hear_hello(connection)["received"])
        ipc.send(process_1, {"exit": 3})
        while not arrived or arrived[-1] != (channel.FILES, b""):
            assert one.connection is not None
            polling.ready({one.connection.fileno()}, 20)
            arrived.extend(one.read())
            one.acknowledge()
        one.detach()

    def dial() -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", channel.PORT), 20)
        except ConnectionRefusedError:
            return None

    client = threading.Thread(target=be_client, daemon=True)
    client.start()
    assert file_link.main([str(other.detach()), "left"]) == 0
    client.join(20)
    process_1.close()
    (kind, end), *files = arrived
    assert (kind, json.loads(end)["exit"], json.loads(end)["files"]) == (channel.END, 3, True)
    archive = io.BytesIO(b"".join(data for _, data in files))
    assert received.receive(archive, [Download("left", tmp_path / "here")]) == []
    assert (tmp_path / "here").read_text() == "a model"


def test_process_ends_with_process_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PORT", free_port())
    process_1, other = socket.socketpair()
    process_1.close()
    assert file_link.main([str(other.detach()), "left"]) == 0


def test_program_without_files_waits_for_nobody() -> None:
    left_files.start({**POD, "TFK8S_INDEX": "0"}).send(0, {signal.SIGCHLD})


def test_files_that_nobody_copies_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(channel, "PORT", free_port())
    monkeypatch.setattr(channel, "CLIENT_TIMEOUT", 0.0)
    process_1, other = socket.socketpair()
    ipc.send(process_1, {"exit": 0})
    assert file_link.main([str(other.detach()), "left"]) == 0
    process_1.close()
    told = "nobody copied the program's files within 0 s: they are lost with the pod"
    assert capsys.readouterr().err == f"tfk8s: {told}\n"


@pytest.mark.programs
def test_a_pod_that_is_deleted_while_files_wait_ends_with_the_code_of_its_program(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tfk8s.task.programs.pod", "never", "0", "-", "sh", "-c", "exit 3"],
        cwd=tmp_path, env={**os.environ, **POD, "TFK8S_VERDICT": str(tmp_path / "message")},
        start_new_session=True,
    )  # fmt: skip
    try:
        polling.wait_until((tmp_path / "message").exists, "the program to end", 20)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 3
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # as the end of process 1 ends the others in a pod
        process.wait()
