"""Streams of a script on this machine that write where they would write, and into a log of the history besides.

The script keeps its streams: the same descriptors, a terminal with its size and its modes, a pipe, a file. So the log
has what Python writes to `sys.stdout` and `sys.stderr`, and not what C++ code and child programs write by themselves.
The lines of the log are `TIME 0 TEXT`, as those of a task. Of a line that was written over, such as a progress bar, the
log has the last state.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import io
import os
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

VARIABLE = "TFK8S_OUTPUT"  # the path of the log
MAX_BYTES = 1 << 20  # that are kept, the last ones
_MAX_LINE = 1 << 14  # bytes, after which a line is cut
_MANY, _MAX_PENDING = 500, 10_000  # blocks that wait, while another thread writes
_PATIENCE = 1.0  # seconds; a signal handler interrupts the thread that writes, and would wait for itself


def _open(path: Path, flags: int = 0) -> int:
    """Open a file to append to it, through no link."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | flags, 0o600)


class OutputLog:
    """Writes a log, as far as the disk has room, from threads, signal handlers and forks.

    Args:
        path: the file, in a folder that exists.

    Raises:
        OSError: the file can't be written.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._owner = path, os.getpid()
        self._file = _open(path, os.O_CREAT)
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Begin without what another thread, or the parent of this fork, has not written yet."""
        self._lock, self._pending = threading.Lock(), deque[tuple[int, bytes]](maxlen=_MAX_PENDING)
        self._rests: dict[int, bytes] = {}

    def add(self, stream: int, block: bytes) -> None:
        """Add what was written to a stream. If another thread, or this one, is writing to the log, that adds it."""
        self._pending.append((stream, block))
        are_many = len(self._pending) > _MANY
        if b"\n" not in block and not are_many:  # `print` writes each word by itself
            return
        while self._pending and self._lock.acquire(are_many, _PATIENCE if are_many else -1):
            try:
                self._write(self._lines())
            finally:
                self._lock.release()

    def end(self) -> None:
        """Add the lines that have no end."""
        lines = self._lines()
        rests, self._rests = self._rests, {}
        self._write([*lines, *filter(None, rests.values())])

    def _lines(self) -> list[bytes]:
        """Return the whole lines of what is pending."""
        found: list[bytes] = []
        while self._pending:
            stream, block = self._pending.popleft()
            *lines, rest = (self._rests.pop(stream, b"") + block).split(b"\n")
            if len(rest) > _MAX_LINE:
                rest = rest.rpartition(b"\r")[2]
            while len(rest) > _MAX_LINE:
                lines, rest = [*lines, rest[:_MAX_LINE]], rest[_MAX_LINE:]
            self._rests[stream] = rest
            found += lines
        return found

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")[:26].encode()
        text = b"".join([b"%bZ 0 %b\n" % (time, _visible(line)[:_MAX_LINE]) for line in lines])[-MAX_BYTES:]
        with contextlib.suppress(OSError):  # the disk is full, or the cluster was removed
            if os.getpid() != self._owner:  # a fork does not see that this file is replaced
                file = _open(self._path)
                try:
                    if not _is_full(file):  # the owner, which may write nothing any more, makes room
                        os.write(file, text)
                finally:
                    os.close(file)
                return
            os.write(self._file, text)
            if _is_full(self._file):
                self._replace()

    def _replace(self) -> None:
        """Keep the last lines in another file of the same name. A kill before its end loses nothing."""
        content = self._path.read_bytes()[-MAX_BYTES:].partition(b"\n")[2]
        unfinished = self._path.with_suffix(".new")
        file = _open(unfinished, os.O_CREAT | os.O_TRUNC)
        try:
            os.write(file, content)
            unfinished.replace(self._path)
            os.dup2(file, self._file, inheritable=False)
        finally:
            os.close(file)


def _is_full(file: int) -> bool:
    """Return whether a log has all that it may have, whichever process has written it."""
    return os.fstat(file).st_size > 2 * MAX_BYTES


def _visible(line: bytes) -> bytes:
    """Return what a terminal shows of a line after the last carriage return in it."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class RecordedFile(io.FileIO):
    """A descriptor of this process. What is written there is added to a log."""

    def __init__(self, number: int, log: OutputLog) -> None:
        super().__init__(number, "w", closefd=False)
        self._log, self._number = log, number

    def write(self, data: Any) -> int:
        """Write to the descriptor; return the number of bytes that it took."""
        count = super().write(data)
        if count:  # None if it would block
            is_whole = type(data) is bytes and len(data) == count
            self._log.add(self._number, data if is_whole else memoryview(data).cast("B")[:count].tobytes())
        return count


def record(path: str) -> OutputLog | None:
    """Add to a log what Python writes to standard output and error from now on; None if the log can't be written."""
    try:
        log = OutputLog(Path(path))
    except OSError:
        return None
    for name, number in (("stdout", 1), ("stderr", 2)):
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            recorded = _recorded(stream, RecordedFile(number, log))
            setattr(sys, name, recorded)
            setattr(sys, f"__{name}__", recorded)
    atexit.register(log.end)
    return log


def _recorded(stream: io.TextIOWrapper, file: RecordedFile) -> io.TextIOWrapper:
    """Return a stream like another one, with the same buffering, that writes to a file."""
    stream.flush()
    file.name = stream.name
    buffer: Any = file if isinstance(stream.buffer, io.FileIO) else io.BufferedWriter(file)
    recorded = io.TextIOWrapper(
        buffer, encoding=stream.encoding, errors=stream.errors, newline="\n", line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )  # fmt: skip
    setattr(recorded, "mode", "w")  # noqa: B010 - as of the stream before; its type says that it is read-only
    return recorded
