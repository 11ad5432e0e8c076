"""The files of a record in a shared history. Other pods may write to the same volume. Standard library only: in pods.

A kill may tear the last line of a file, and the last gzip member of a log: what comes next begins a new one.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tfk8s.core.history import facts
from tfk8s.core.history.facts import MAX_AGE, MAX_ENTRIES
from tfk8s.core.history.shared import EVENTS, FACTS, FOLDER, LOGS, parse_record_name, record_name
from tfk8s.task.files import line_file

MAX_LOG = 1 << 20  # bytes of a log that are kept, the last ones
_MAX_TASKS, _MAX_FACTS = 1 << 20, 3 << 20  # bytes, up to which tasks and other facts are written; the last ones even so
_MOST_TOGETHER = 6 << 20  # bytes of the facts of several writers: commands read no more
_LONGEST = 64 << 10  # bytes of a fact that is read again: those of commands are shorter
_MAX_EVENTS = 1 << 20
_MAX_READ = 8 << 20
_CHUNK = 1 << 16
_ALL_WRITE = 0o1777  # as /tmp: pods of several users keep their records there


class RecordFiles:
    """The record of one cluster.

    Args:
        volume: the folder of the volume.
        cluster, uid: the cluster's name, and the UID of its ConfigMap.
    """

    def __init__(self, volume: Path, cluster: str, uid: str) -> None:
        self._all = volume / FOLDER
        self._path = self._all / record_name(cluster, uid)
        self._sizes: dict[str, int] = {}  # bytes of logs before compression; unknown after another pod has written them

    def make(self) -> None:
        """Make the folders.

        Raises:
            OSError: the volume can't be written.
        """
        with contextlib.suppress(FileExistsError):
            self._all.mkdir(parents=True)
            self._all.chmod(_ALL_WRITE)
        for path in (self._path, self._path / LOGS):
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o755)

    def add(self, fact: facts.Fact, *, is_last: bool = False) -> None:
        """Append a fact, unless there are too many; OSError if the volume can't be written.

        Args:
            is_last: the fact is written even so.
        """
        path = self._path / FACTS
        if is_last or _size(path) < (_MAX_TASKS if fact["kind"] == "tasks" else _MAX_FACTS):
            _append_line(path, fact)

    def facts(self) -> Iterator[facts.Fact]:
        """Yield the facts but the longest, without torn lines; OSError if the volume can't be read."""
        return (fact for line in _read(self._path / FACTS) if len(line) < _LONGEST and (fact := facts.parse(line)))

    def reopen(self) -> None:
        """Leave out the ends that earlier pods have written; OSError if the volume can't be written."""
        path = self._path / FACTS
        if _size(path) <= _MAX_READ:
            replace_file(path, b"".join(line for line in _read(path) if not _is_end(line)))

    def event_counts(self) -> dict[str, int]:
        """Return how often each event has occurred, as the file says; OSError if the volume can't be read."""
        events = filter(None, map(facts.parse, _read(self._path / EVENTS)))
        return {str(event.get("id")): count for event in events if isinstance(count := event.get("count"), int)}

    def add_events(self, events: Iterable[dict[str, Any]]) -> None:
        """Append events. Of too many, the older half goes."""
        path = self._path / EVENTS
        for event in events:
            _append_line(path, event)
        if _size(path) > _MAX_EVENTS:
            kept = [line.rstrip(b"\n") for line in _read(path)]
            replace_file(path, b"".join(line + b"\n" for line in kept[len(kept) // 2 :]))

    def add_log(self, name: str, lines: Sequence[bytes]) -> None:
        """Append lines to a log. Of a long log, the end stays.

        Args:
            name: "worker-1", or a script's.
            lines: each without its end.
        """
        if not lines:
            return
        path, content = self._path / LOGS / f"{name}.gz", line_file.tail((line + b"\n" for line in lines), MAX_LOG)
        size = self._sizes.get(name, MAX_LOG if path.exists() else 0) + len(content)
        if size > 2 * MAX_LOG or _size(path) > MAX_LOG:  # short members are longer than what they have
            content = line_file.tail([_read_log(path)[0], content], MAX_LOG)
            replace_file(path, gzip.compress(content))
            size = len(content)
        else:
            _write(path, os.O_APPEND, gzip.compress(content))
        self._sizes[name] = size

    def resume_log(self, name: str) -> str:
        """Return the time of a log's last line, "" without one, after leaving out what a kill has torn."""
        path = self._path / LOGS / f"{name}.gz"
        content, is_whole = _read_log(path)
        if not is_whole:
            replace_file(path, gzip.compress(content))
        self._sizes[name] = 2 * MAX_LOG if content else 0  # perhaps: the next lines cut the log
        lines = content.splitlines()
        return lines[-1].partition(b" ")[0].decode(errors="replace") if lines else ""

    def prune(self, *, older: float = MAX_AGE, most: int = MAX_ENTRIES) -> None:
        """Remove the records that are too old or too many, as far as this user may; never the own one.

        Args:
            older: the greatest age of what a record was told last, in seconds.
            most: the greatest number of records.
        """
        found = [path for path in self._all.iterdir() if parse_record_name(path.name) and not path.is_symlink()]
        ages = {path: _last_change(path) for path in found if path != self._path}
        newest = sorted(ages, key=lambda path: ages[path], reverse=True)
        for path in (*newest[most - 1 :], *(path for path in newest if ages[path] < time.time() - older)):
            shutil.rmtree(path, ignore_errors=True)


def _is_end(line: bytes) -> bool:
    return len(line) < _LONGEST and (facts.parse(line) or {}).get("kind") == "end"


def _append_line(path: Path, plain: object) -> None:
    line_file.append(_opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), line_file.to_line(plain))


def _write(path: Path, flags: int, content: bytes) -> None:
    """Write in one call, which a kill of this process does not tear."""
    with open(_opened(path, os.O_WRONLY | os.O_CREAT | flags), "wb", buffering=0) as file:
        file.write(content)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file of a record as a whole: a kill leaves the old content; OSError if the volume can't be written."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{time.time_ns()}.new")
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()
    _write(unfinished, os.O_EXCL, content)
    unfinished.replace(path)


def add_lines(path: Path, content: bytes) -> None:
    """Append those of another writer's facts that a file lacks, as far as there is room; OSError as `replace_file`."""
    known, size = {line.rstrip(b"\n") for line in _read(path)}, _size(path)
    lacking = []
    for line in dict.fromkeys(content.split(b"\n")[:-1]):
        if line and line not in known and size + len(line) < _MOST_TOGETHER:
            size += len(line) + 1
            lacking.append(line)
    if lacking:
        line_file.append(_opened(path, os.O_RDWR | os.O_APPEND), b"\n".join(lacking))


def _opened(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return the descriptor of a regular file, through no link; OSError for what others have put in its place."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is no regular file")
    return descriptor


def _read(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, whatever others have written there: no line is kept that is too long to be a fact."""
    try:
        with open(_opened(path), "rb") as file:
            left = _MAX_READ
            while left > 0 and (line := file.readline(facts.MAX_LINE)):
                left -= len(line)
                yield line
    except FileNotFoundError:
        return


def _read_log(path: Path) -> tuple[bytes, bool]:
    """Return the last whole lines of a log, and whether all of the file could be read."""
    damage: list[Exception] = []
    content = line_file.tail(_unpacked(path, damage), MAX_LOG)
    return (b"".join(content.rpartition(b"\n")[:2]) if damage else content), not damage


def _unpacked(path: Path, damage: list[Exception]) -> Iterator[bytes]:
    """Yield what a log has, up to what is torn or damaged, which is added to `damage`."""
    try:
        with open(_opened(path), "rb") as file, gzip.open(file) as packed:
            while chunk := packed.read1(_CHUNK):
                yield chunk
    except FileNotFoundError:
        pass
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        damage.append(error)


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _last_change(path: Path) -> float:
    with contextlib.suppress(OSError):
        return (path / FACTS).stat(follow_symlinks=False).st_mtime
    return 0.0
