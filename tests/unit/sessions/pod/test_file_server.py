"""The files that a script's pod sends: the archive, and the client that gets it or is lost."""

from __future__ import annotations

import io
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from tfk8s.errors import quoted
from tfk8s.sessions.pod import file_server
from tfk8s.task.files import packed


def parsed(source: IO[bytes]) -> list[list[Any]]:
    """Return the entries of an archive, a file with its content."""
    found = []
    for line in source:
        kind, *values = json.loads(line)
        found.append([kind, values[0], source.read(values[1])] if kind == "file" else [kind, *values])
    return found


def entries_of(*paths: str) -> list[list[Any]]:
    sink = io.BytesIO()
    packed.pack(paths, sink)
    sink.seek(0)
    return parsed(sink)


def test_an_archive_has_numbered_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model/empty").mkdir(parents=True)
    (tmp_path / "model/a").write_text("A")
    os.link("model/a", "model/b")
    os.mkfifo("model/pipe")
    Path("latest").symlink_to("model")
    Path("model/link").symlink_to("a")
    assert entries_of("latest", "none", "model/a") == [
        ["folder", "0"],
        ["file", "0/a", b"A"],
        ["file", "0/b", b"A"],
        ["folder", "0/empty"],
        ["link", "0/link"],
        ["file", "2", b"A"],
        ["end", [
            f'{quoted(f"{tmp_path}/model/pipe")} was not copied: it is a pipe, a socket or a device',
            '"none" was not copied: there is no such file or folder',
        ]],
    ]  # fmt: skip


def test_many_problems_are_counted(tmp_path: Path) -> None:
    (*_, (_, problems)) = entries_of(*[str(tmp_path / "none")] * 103)
    assert problems[99:] == [
        f'"{tmp_path}/none" was not copied: there is no such file or folder',
        "3 more files were not copied",
    ]


class Truncates(io.BytesIO):
    """A sink that makes a file shorter when the file's size is written."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if b"0/a" in data:
            os.truncate(self.path, 10)
        return super().write(data)


def test_a_file_that_becomes_shorter_loses_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x" * 300_000)
    sink = Truncates(tmp_path / "a")
    packed.pack([str(tmp_path)], sink)
    sink.seek(0)
    _, (_, _, a), (_, _, b), (_, problems) = parsed(sink)
    assert (a, b) == (b"x" * len(a.rstrip(b"\0")) + bytes(300_000 - len(a.rstrip(b"\0"))), b"x" * 300_000)
    assert problems == [f"{quoted(f'{tmp_path}/a')} was not copied whole, and its end is zeros: it became shorter"]


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
    assert [kind for kind, *_ in parsed(connection.makefile("rb"))] == ["file", "end"]
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
