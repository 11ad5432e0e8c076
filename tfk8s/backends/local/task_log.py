"""The log of a task. The supervisor writes each line with its time and the number of the task's run, from 0.

2026-11-22T10:17:03.120395Z 1 worker/0 listens on localhost:2222
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tfk8s.backends.own_folder import open_file
from tfk8s.sessions.forks.event_loop import Loop

_BLOCK = 1 << 16
_MAX_LINE = 1 << 20  # a longer line is cut in two


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """One line of a task's log.

    Attributes:
        time: the time in RFC 3339. The order of times is the order of their texts.
        run: the number of the task's restarts before.
        text: what the task wrote.
    """

    time: str
    run: int
    text: str


def timestamp(seconds: float) -> str:
    """Return a time as `LoggedLine.time` has it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse(line: str) -> LoggedLine:
    """Return the parts of a line of a log. A line that a full disk has cut off has no text."""
    written, _, rest = line.partition(" ")
    run, _, text = rest.partition(" ")
    return LoggedLine(written, int(run) if run.isdecimal() else 0, text)


class LogPipe:
    """The output of one run of a task, on its way to the log.

    Args:
        loop: calls back when there is output.
        path: the log.
        run: the number of the run.

    Attributes:
        writer: the descriptor for the task. The caller closes it.
        explain: returns a line of tfk8s that follows a line of the task, or "".
    """

    def __init__(self, loop: Loop, path: Path, run: int) -> None:
        self._loop, self._run = loop, run
        self.explain: Callable[[str], str] = lambda _: ""
        self._unfinished = b""
        self._file: int | None = None
        with contextlib.suppress(OSError):  # the disk is full
            self._file = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._reader: int | None
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        loop.on_readable(self._reader, self.drain)

    def drain(self) -> None:
        """Copy what the task has written. Processes that the task left behind may write more later."""
        for _ in range(1 + _MAX_LINE // _BLOCK):
            if not self._copy():
                return

    def note(self, text: str) -> None:
        """Write a line of tfk8s."""
        self._write([f"tfk8s: {text}".encode()])

    def _copy(self) -> bool:
        """Copy a block; return whether there may be more."""
        if self._reader is None:
            return False
        try:
            block = os.read(self._reader, _BLOCK)
        except BlockingIOError:
            return False
        *lines, self._unfinished = (self._unfinished + block).split(b"\n")
        if self._unfinished and (not block or len(self._unfinished) > _MAX_LINE):
            lines, self._unfinished = [*lines, self._unfinished], b""
        self._write(lines)
        for line in lines:
            if text := self.explain(line.decode(errors="replace")):
                self.note(text)
        if not block:
            self._close()
        return bool(block)

    def _write(self, lines: list[bytes]) -> None:
        if lines and self._file is not None:
            prefix = f"{timestamp(time.time())} {self._run} ".encode()
            with contextlib.suppress(OSError):  # the disk is full
                os.write(self._file, b"".join(prefix + line + b"\n" for line in lines))

    def _close(self) -> None:
        assert self._reader is not None
        self._loop.forget(self._reader)
        os.close(self._reader)
        self._reader = None
        if self._file is not None:
            os.close(self._file)
            self._file = None
