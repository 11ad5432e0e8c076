"""The files that a script's pod sends: the archive, and the client that gets it or is lost."""

from __future__ import annotations

import io
import json
import os
import socket
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tfk8s.sessions.pod import file_server


def test_an_archive_has_numbered_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model/empty").mkdir(parents=True)
    (tmp_path / "model/a").write_text("A")
    os.link("model/a", "model/b")
    os.mkfifo("model/pipe")
    Path("latest").symlink_to("model")
    sink = io.BytesIO()
    file_server.pack(["latest", "none", "model/a"], sink)
    sink.seek(0)
    with tarfile.open(fileobj=sink, mode="r|") as archive:
        members = {member.name: (member.type, member.size) for member in archive}
    assert members.pop("problems")[0] == tarfile.REGTYPE
    file, folder = (tarfile.REGTYPE, 1), (tarfile.DIRTYPE, 0)
    assert members == {"0": folder, "0/a": file, "0/b": file, "0/empty": folder, "2": file}


def test_what_can_not_be_read_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    sink = io.BytesIO()
    file_server.pack([str(tmp_path), str(tmp_path / "none")], sink)
    sink.seek(0)
    with tarfile.open(fileobj=sink) as archive:
        problems = archive.extractfile("problems")
        assert problems is not None
        assert json.load(problems) == [
            f'"{tmp_path}/pipe" was not copied: it is a pipe, a socket or a device',
            f'"{tmp_path}/none" was not copied: there is no such file or folder',
        ]


class Truncates(io.BytesIO):
    """A sink during whose first write a file becomes shorter."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def write(self, data: bytes) -> int:  # type: ignore[override]
        os.truncate(self.path, 10)
        return super().write(data)


def test_a_file_that_becomes_shorter_loses_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x" * 300_000)
    sink = Truncates(tmp_path / "a")
    file_server.pack([str(tmp_path)], sink)
    sink.seek(0)
    with tarfile.open(fileobj=sink) as archive:
        assert [archive.getmember(f"0/{name}").size for name in ("a", "b")] == [300_000, 300_000]
        problems = archive.extractfile("problems")
        assert problems is not None
        reason = "was not copied whole, and its end is zeros: it became shorter"
        assert json.load(problems) == [f'"{tmp_path}/a" {reason}']


def serve(address: str, *clients: Callable[[socket.socket], object], timeout: float = 20.0) -> bool:
    """Serve one file to these clients, one after the other."""
    results: list[bool] = []
    listening = threading.Event()

    def run() -> None:
        results.append(file_server.serve([__file__], listening.set, timeout, address))

    server = threading.Thread(target=run)
    server.start()
    assert listening.wait(20)
    for client in clients:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            client(connection)
    server.join(20)
    return results[0]


def vanish(connection: socket.socket) -> None:
    connection.recv(1)


def receive(connection: socket.socket) -> None:
    received = connection.makefile("rb").read()
    with tarfile.open(fileobj=io.BytesIO(received)) as archive:
        assert archive.getnames() == ["0", "problems"]
    connection.sendall(b"\n")


def test_a_client_that_vanishes_may_come_back(tmp_path: Path) -> None:
    assert serve(str(tmp_path / "socket"), vanish, receive)


def test_a_client_that_hangs_keeps_no_other_waiting(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")

    def hang(connection: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(address)
            receive(other)

    assert serve(address, hang)


@pytest.mark.parametrize("clients", [(), (vanish,)])
def test_a_client_that_stays_away_is_given_up(
    tmp_path: Path, clients: tuple[Callable[[socket.socket], object]]
) -> None:
    assert not serve(str(tmp_path / "socket"), *clients, timeout=0.05)
