"""Reads what tasks wrote, and what they go on to write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tfk8s import waiting
from tfk8s.backends import LogLine
from tfk8s.spec import Task

_BLOCK = 1 << 16


def read(files: Sequence[tuple[Task, Path]], *, follow: bool, tail: int | None) -> Iterator[LogLine]:
    """Yield the last `tail` lines of each file (None: all), then, with `follow`, new ones until the files are gone."""
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
    for _ in waiting.changes(lambda: [_size(path) for path in paths]):
        for reader in readers:
            yield from reader.lines()
        if not any(path.parent.exists() for path in paths):
            return


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1


class _Reader:
    """Reads whole lines from a file that grows, and that may not be there yet."""

    def __init__(self, task: Task, path: Path, tail: int | None) -> None:
        self._task, self._path, self._tail = task, path, tail
        self._file: BinaryIO | None = None
        self._rest = b""

    def lines(self) -> Iterator[LogLine]:
        if self._file is None:
            if not self._path.exists():
                return
            self._file = self._path.open("rb")
            if self._tail is not None:
                self._file.seek(tail_offset(self._file, self._tail))
        while block := self._file.read(_BLOCK):
            *lines, self._rest = (self._rest + block).split(b"\n")
            for line in lines:
                yield LogLine(task=self._task, text=line.decode(errors="replace"))

    def rest(self) -> Iterator[LogLine]:
        if self._rest:
            yield LogLine(task=self._task, text=self._rest.decode(errors="replace"))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def tail_offset(file: BinaryIO, count: int) -> int:
    """Return where the last `count` lines of a file begin."""
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
