"""Reads the logs of tasks, and follows them."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tfk8s import polling
from tfk8s.backends.local import task_log
from tfk8s.backends.own_folder import open_file
from tfk8s.core.script import LogLine, LogOptions
from tfk8s.core.spec import Task

_BLOCK = 1 << 16
_PREFIX = 64  # bytes, more than a line's time and run


def read_tasks(files: Sequence[tuple[Task, Path]], options: LogOptions) -> Iterator[LogLine]:
    """Yield lines of tasks' logs, which the supervisor has written."""
    since = "" if options.since is None else task_log.timestamp(time.time() - options.since)
    previous = (line for task, path in files for line in _previous_run(task, path, options.tail))
    lines = previous if options.previous else read(files, follow=options.follow, tail=options.tail)
    for line in lines:
        logged = task_log.parse(line.text)
        if logged.time >= since:
            text = f"{logged.time} {logged.text}" if options.timestamps else logged.text
            yield LogLine(task=line.task, text=text)


def _previous_run(task: Task, path: Path, tail: int | None) -> Iterator[LogLine]:
    """Yield the lines of the run before a task's last restart."""
    if not path.exists():
        return
    with open(open_file(path), "rb") as file:
        start, end = _last_but_one(file)
        file.seek(start)
        lines: Iterable[bytes] = itertools.takewhile(lambda _: file.tell() <= end, iter(file.readline, b""))
        for line in lines if tail is None else deque(lines, maxlen=tail):
            yield LogLine(task=task, text=line.decode(errors="replace").removesuffix("\n"))


def _last_but_one(file: BinaryIO) -> tuple[int, int]:
    """Return the offsets of the begin and the end of the last run but one; both are 0 if there is only one run."""
    begins, offset, run = [0, 0], 0, 0
    for line in file:
        number = task_log.parse(line[:_PREFIX].decode(errors="replace")).run
        if number > run:
            begins, run = [begins[-1], offset], number
        offset += len(line)
    return begins[0], begins[1]


def read(files: Sequence[tuple[Task, Path]], *, follow: bool, tail: int | None) -> Iterator[LogLine]:
    """Yield lines of logs.

    Args:
        files: the tasks and their files.
        follow: yield new lines, until the files are removed.
        tail: the number of last lines of each file to begin with; None means all.
    """
    readers = [_Reader(task, path, tail) for task, path in files]
    try:
        for reader in readers:
            yield from reader.lines()
        if follow:
            yield from _follow(readers, [path for _, path in files])
        else:
            for reader in readers:
                yield from reader.rest()
    finally:
        for reader in readers:
            reader.close()


def _follow(readers: Sequence[_Reader], paths: Sequence[Path]) -> Iterator[LogLine]:
    for _ in polling.changes(lambda: [_size(path) for path in paths]):
        for reader in readers:
            yield from reader.lines()
        if not any(path.parent.exists() for path in paths) or any(reader.is_replaced() for reader in readers):
            return


def _size(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, -1
    return status.st_ino, status.st_size


class _Reader:
    """Reads whole lines from a file that grows, and that may not exist yet."""

    def __init__(self, task: Task, path: Path, tail: int | None) -> None:
        self._task, self._path, self._tail = task, path, tail
        self._file: BinaryIO | None = None
        self._rest = b""

    def lines(self) -> Iterator[LogLine]:
        if self._file is None:
            try:
                self._file = open(open_file(self._path), "rb")  # noqa: SIM115 - until `close`
            except FileNotFoundError:
                return
            if self._tail is not None:
                self._file.seek(tail_offset(self._file, self._tail))
        while block := self._file.read(_BLOCK):
            *lines, self._rest = (self._rest + block).split(b"\n")
            for line in lines:
                yield LogLine(task=self._task, text=line.decode(errors="replace"))

    def is_replaced(self) -> bool:
        """Return whether another cluster's file has replaced the open file."""
        return self._file is not None and _size(self._path)[0] not in (0, os.fstat(self._file.fileno()).st_ino)

    def rest(self) -> Iterator[LogLine]:
        if self._rest:
            yield LogLine(task=self._task, text=self._rest.decode(errors="replace"))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def tail_offset(file: BinaryIO, count: int) -> int:
    """Return the offset of the last `count` lines of a file."""
    if count == 0:
        return file.seek(0, 2)
    position = end = file.seek(0, 2)
    seen = -1 if _ends_with_newline(file, end) else 0
    while position > 0:
        start = max(0, position - _BLOCK)
        file.seek(start)
        block = file.read(position - start)
        for index in range(len(block) - 1, -1, -1):
            if block[index] == 0x0A:
                seen += 1
                if seen == count:
                    return start + index + 1
        position = start
    return 0


def _ends_with_newline(file: BinaryIO, end: int) -> bool:
    if end == 0:
        return False
    file.seek(end - 1)
    return file.read(1) == b"\n"
