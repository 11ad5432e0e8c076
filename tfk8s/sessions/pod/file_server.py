"""The files that a script's pod sends when the script has ended: process 1 serves them, and an `exec` stream gets them.

A pod's container ends with the script, so process 1 waits for the client. The client runs this module in the container.
The module copies the archive from process 1 to its standard output, and the client's receipt back. So a broken stream
is noticed by process 1, which then waits for another one. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import stat
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tfk8s.errors import quoted

VARIABLE = "TFK8S_DOWNLOADS"
COMMAND = ("python3", "-m", "tfk8s.sessions.pod.file_server")
PROBLEMS = "problems"  # the last file of each archive: the list of what could not be read, as JSON
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
    """Write files and folders as a tar archive. The members of the third path are "2", "2/a", "2/a/b".

    Raises:
        OSError: `sink` can't be written.
    """
    problems: list[str] = []
    with tarfile.open(fileobj=sink, mode="w|") as archive:
        for number, path in enumerate(paths):
            _add_all(archive, str(number), path, problems)
        text = json.dumps(problems).encode()
        last = tarfile.TarInfo(PROBLEMS)
        last.size = len(text)
        archive.addfile(last, io.BytesIO(text))


def _add_all(archive: tarfile.TarFile, name: str, path: str, problems: list[str]) -> None:
    root = Path(os.path.realpath(path))
    try:
        root.stat()
    except OSError as error:
        reason = "there is no such file or folder" if isinstance(error, _MISSING) else error.strerror
        problems.append(f"{quoted(path)} was not copied: {reason}")
        return
    for entry in _walk(root, problems):
        try:
            member, file = _open(archive, entry, f"{name}/{entry.relative_to(root)}" if entry != root else name)
        except OSError as error:
            problems.append(f"{quoted(str(entry))} was not copied: {error.strerror or error}")
            continue
        with file or contextlib.nullcontext():
            content = _Padded(file) if file else None
            archive.addfile(member, content)  # type: ignore[arg-type]
        if content and content.problem:
            problems.append(f"{quoted(str(entry))} was not copied whole, and its end is zeros: {content.problem}")


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


def _open(archive: tarfile.TarFile, path: Path, name: str) -> tuple[tarfile.TarInfo, IO[bytes] | None]:
    mode = path.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise OSError("it is a pipe, a socket or a device")
    file = path.open("rb") if stat.S_ISREG(mode) else None
    member = archive.gettarinfo(path, name)
    if file:  # a second link to a file is another file, because the first may not be extracted
        member.type, member.size = tarfile.REGTYPE, os.fstat(file.fileno()).st_size
    return member, file


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
