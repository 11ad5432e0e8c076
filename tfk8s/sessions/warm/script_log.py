"""The log of a script in a warm pod, as Kubernetes keeps that of a script's own pod: a time before each line, marks.

A file holds the newest lines, and a second one those before. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from tfk8s import polling
from tfk8s.sessions.pod.end_line import MARK, end_line
from tfk8s.task.stream import channel

MAX_BYTES = 8 << 20  # of one file
MAX_LINE = 1 << 14  # bytes, after which a line is cut, as by Kubernetes
_BLOCK = 1 << 16
_LOOK_INTERVAL = 0.2
_TIMEOUT = 600.0  # of a client that does not read, as behind a pager


def _time(ago: float = 0.0) -> bytes:
    """Return the time so many seconds ago, in RFC 3339."""
    time = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()


def _older(path: Path) -> Path:
    return path.with_suffix(".before")


class ScriptLog:
    """Writes a log, as far as the disk has room.

    Args:
        path: the file, in a folder that exists at the first line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._rests = {b"": b"", MARK: b""}  # the lines of output and of errors without an end so far

    def add(self, block: bytes, *, is_error: bool) -> None:
        """Add a block of the script's output or errors."""
        mark = MARK if is_error else b""
        *lines, rest = (self._rests[mark] + block).split(b"\n")
        while len(rest) > MAX_LINE:
            lines.append(rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        self._rests[mark] = rest
        self._write(mark + line for line in lines)

    def end(self, code: int, note: str) -> None:
        """Add the script's end to both streams, and close the file."""
        end = end_line(code, note)
        self._write(mark * bool(rest) + rest + end for mark, rest in self._rests.items())
        if self._file is not None:
            self._file.close()

    def _write(self, lines: Iterator[bytes]) -> None:
        time = _time()
        text = b"".join(b"%b %b\n" % (time, line) for line in lines)
        with contextlib.suppress(OSError):  # the script goes on without a log
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            self._file.write(text)
            if self._file.tell() > MAX_BYTES:
                self._file.close()
                self._path.rename(_older(self._path))
                self._file = None


def blocks(path: Path, options: dict[str, Any], is_wanted: Callable[[], bool]) -> Iterator[bytes]:
    """Yield a log in blocks of whole lines.

    Args:
        path: the log's file.
        options: "tail", the number of last lines, or null; "since", so many seconds at most since a line, or null;
            "follow", whether to continue until the log is removed.
        is_wanted: waits a moment; returns whether somebody still reads.
    """
    first = b"" if options["since"] is None else _time(options["since"])
    with contextlib.ExitStack() as stack:
        files = []
        for one in (_older(path), path):
            with contextlib.suppress(OSError):
                files.append(stack.enter_context(one.open("rb")))
        lines = (line for file in files for line in file if line >= first)
        yield from _joined(lines if options["tail"] is None else deque(lines, options["tail"]))
        current = files[-1] if files else None
        while options["follow"] and path.parent.exists() and is_wanted():
            if current is not None:
                yield from _joined(current)
            if current is None or not _is_at(path, current):
                with contextlib.suppress(OSError):
                    following = stack.enter_context(path.open("rb"))
                    if current is not None:
                        yield from _joined(current)  # what came before the other file
                        current.close()
                    current = following
        if options["follow"] and current is not None:
            yield from _joined(current)


def _is_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except OSError:
        return False


def _joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    block = b""
    for line in lines:
        block += line
        if len(block) >= _BLOCK:
            yield block
            block = b""
    if block:
        yield block


def serve(connection: socket.socket, path: Path, options: dict[str, Any]) -> None:
    """Send a log over a connection: frames `OUTPUT`, then `END`. A client without that script gets "gone".

    Args:
        connection: the connection, after the client's first frame.
        path: the log's file.
        options: as of `blocks`.
    """
    connection.settimeout(_TIMEOUT)

    def is_wanted() -> bool:
        says_more = polling.ready({connection.fileno()}, _LOOK_INTERVAL)
        return not says_more or bool(connection.recv(_BLOCK))  # a sign of life, or the end

    with contextlib.suppress(OSError):  # the client is gone
        if not path.parent.exists():
            channel.say_hello(connection, {"gone": True})
            return
        channel.say_hello(connection, {"received": 0})
        for block in blocks(path, options, is_wanted):
            connection.sendall(channel.frame(channel.OUTPUT, block))
        connection.sendall(channel.frame(channel.END, b"{}"))
        while polling.ready({connection.fileno()}, channel.SILENCE_TIMEOUT) and connection.recv(_BLOCK):
            pass  # until the client has read everything
