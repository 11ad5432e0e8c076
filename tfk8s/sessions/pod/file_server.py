"""The files that a script's pod sends when the script has ended: process 1 serves them, and an `exec` stream gets them.

A pod's container ends with the script, so process 1 waits for the client. The client runs this module in the container.
The module copies the archive from process 1 to its standard output, and the client's receipt back. So a broken stream
is noticed by process 1, which then waits for another one. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tfk8s.errors import quoted

VARIABLE = "TFK8S_DOWNLOADS"
COMMAND = ("python3", "-m", "tfk8s.sessions.pod.file_server")
MAX_PROBLEMS = 100
CLIENT_TIMEOUT = 300.0  # `submit` survives an outage of the API server for so long
STALL_TIMEOUT = 60.0
ADDRESS = "\0tfk8s-downloads"  # an abstract socket: it needs no file system that is writable
_BLOCK = 1 << 16
_MISSING = (FileNotFoundError, NotADirectoryError)


def serve(
    paths: Sequence[str], announce: Callable[[], object], timeout: float = CLIENT_TIMEOUT, address: str = ADDRESS
) -> bool:
    """Send an archive to a client; return whether the client has received it.

    Args:
        paths: the files and folders.
        announce: called when clients can connect.
        timeout: the seconds to wait for a client, and for another one after each that fails.
        address: of the socket.
    """
    received = threading.Event()
    threads: list[threading.Thread] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        listener.settimeout(timeout)

        def send(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):  # the client is gone, or does not read
                if _send(paths, client):
                    received.set()
                    with socket.socket(socket.AF_UNIX) as wakeup:
                        wakeup.connect(address)

        announce()
        while True:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                if not any(thread.is_alive() for thread in threads):
                    return False
                continue
            if received.is_set():
                client.close()
                return True
            # The process of a client whose stream broke may live on, and must not keep the next client waiting.
            threads.append(threading.Thread(target=send, args=(client,), daemon=True))
            threads[-1].start()


def _send(paths: Sequence[str], client: socket.socket) -> bool:
    client.settimeout(STALL_TIMEOUT)
    with client.makefile("wb") as sink:
        pack(paths, sink)
    client.shutdown(socket.SHUT_WR)
    return bool(client.recv(1))


def pack(paths: Sequence[str], sink: IO[bytes]) -> None:
    """Write files and folders as entries.

    An entry is a list in JSON on a line:

    - ["folder", NAME]
    - ["file", NAME, SIZE, IS_EXECUTABLE], and SIZE bytes after the line
    - ["link", NAME]: not copied, since a link leads where its receiver does not want to go
    - ["end", PROBLEMS]: the last entry, with what could not be read

    The names of the third path are "2", "2/a", "2/a/b".

    Raises:
        OSError: `sink` can't be written.
    """
    problems: list[str] = []
    for number, path in enumerate(paths):
        _add_all(sink, str(number), path, problems)
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"{len(problems) - MAX_PROBLEMS} more files were not copied"]
    _add_entry(sink, "end", problems)


def _add_entry(sink: IO[bytes], *entry: object) -> None:
    sink.write(json.dumps(entry).encode() + b"\n")


def _add_all(sink: IO[bytes], name: str, path: str, problems: list[str]) -> None:
    root = Path(os.path.realpath(path))
    try:
        root.stat()
    except OSError as error:
        reason = "there is no such file or folder" if isinstance(error, _MISSING) else error.strerror
        problems.append(f"{quoted(path)} was not copied: {reason}")
        return
    for entry in _walk(root, problems):
        try:
            problem = _add(sink, entry, f"{name}/{entry.relative_to(root)}" if entry != root else name)
        except _Unreadable as error:
            problem = f"was not copied: {error}"
        if problem:
            problems.append(f"{quoted(str(entry))} {problem}")


class _Unreadable(Exception):
    """A file can't be read, or is none."""


def _add(sink: IO[bytes], path: Path, name: str) -> str:
    """Add a file, a folder or a link; return the problem with a file that was not copied whole, or "".

    Raises:
        _Unreadable: there is nothing to copy.
        OSError: `sink` can't be written.
    """
    mode, file = _open(path)
    if file is None:
        _add_entry(sink, "link" if stat.S_ISLNK(mode) else "folder", name)
        return ""
    with file:
        left = os.fstat(file.fileno()).st_size
        _add_entry(sink, "file", name, left, bool(mode & stat.S_IXUSR))
        content = _Padded(file)
        while left:
            left -= sink.write(content.read(min(left, _BLOCK)))
    return f"was not copied whole, and its end is zeros: {content.problem}" if content.problem else ""


class _Padded:
    """A file that has as many bytes as the archive was told. Zeros replace what can't be read.

    Args:
        file: the file.

    Attributes:
        problem: why there are zeros; "" if there are none.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.problem = ""

    def read(self, size: int) -> bytes:
        """Return the next bytes, and never fewer."""
        data = b""
        if not self.problem:
            try:
                data = self._file.read(size)
                self.problem = "" if len(data) == size else "it became shorter"
            except OSError as error:
                self.problem = error.strerror or str(error)
        return data.ljust(size, b"\0")


def _walk(root: Path, problems: list[str]) -> Iterator[Path]:
    """Yield a file or a folder, and all in it."""
    yield root
    if not root.is_dir():
        return

    def unreadable(error: OSError) -> None:
        problems.append(f"{quoted(str(error.filename))} was not copied: {error.strerror}")

    for parent, folders, names in os.walk(root, onerror=unreadable):
        folders.sort()
        yield from (Path(parent, name) for name in sorted([*folders, *names]))


def _open(path: Path) -> tuple[int, IO[bytes] | None]:
    """Return the mode of a file, a folder or a link, and the file's content.

    Raises:
        _Unreadable: the file can't be opened, or is a pipe, a socket or a device.
    """
    try:
        mode = path.lstat().st_mode
        file = path.open("rb") if stat.S_ISREG(mode) else None
    except OSError as error:
        raise _Unreadable(error.strerror or str(error)) from error
    if file is None and not (stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise _Unreadable("it is a pipe, a socket or a device")
    return mode, file


def main() -> None:
    """Copy the archive to standard output, and the receipt from standard input."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(ADDRESS)
        while block := server.recv(_BLOCK):
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        server.sendall(sys.stdin.buffer.read(1))


if __name__ == "__main__":
    main()
