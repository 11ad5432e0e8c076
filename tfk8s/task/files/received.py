"""Unpacks an archive of `packed` into the places of its files. Standard library only: this file also runs in pods.

Whoever controls a pod writes what the archive says, so each entry is checked, and nothing is believed. The
files are unpacked beside their places first. So a broken stream or a full disk leaves the files as they were.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from tfk8s.core.quantity import Quantity
from tfk8s.core.script import Download
from tfk8s.errors import ClusterError, InvalidInput, quoted
from tfk8s.log import log
from tfk8s.task.programs.folder_writer import FolderWriter, InvalidPath, LinkInPlace

_FILE = "file"  # the name of a single file until it is in its place
_LINE_LIMIT = 1 << 20  # bytes of an entry, which has one path of at most 4096 bytes, or the problems
_FOLDERS = 10  # in the paths of all entries, for each entry that may come
_BLOCK = 1 << 16
_PATIENCE = 60.0  # seconds; afterwards, an archive that comes slower than `_LEAST_RATE` is given up
_LEAST_RATE = 1000.0  # bytes a second, on average


class BadArchive(ClusterError):
    """An archive is damaged, too large or too slow, as the same archive will be again."""


class Limit(NamedTuple):
    """A limit of what an archive may have, which a variable raises."""

    variable: str
    default: str

    @property
    def text(self) -> str:
        """The limit as its user gave it."""
        return os.environ.get(self.variable) or self.default

    def value(self) -> int:
        """Return the limit.

        Raises:
            InvalidInput: the variable is no quantity.
        """
        try:
            return int(Quantity.parse(self.text).value)
        except ValueError as error:
            message = f"{self.variable}={quoted(self.text)} is no quantity"
            raise InvalidInput(message, help=f"for example {self.default}") from error


SIZE = Limit("TFK8S_GET_LIMIT", "100Gi")  # bytes
ENTRIES = Limit("TFK8S_GET_FILES", "1M")  # files, folders and links
PROBLEMS = Limit("TFK8S_GET_PROBLEMS", "20")  # files that are named, because they were not copied


def check_limits() -> None:
    """Check the variables of all limits.

    Raises:
        InvalidInput: a variable is no quantity.
    """
    for limit in (SIZE, ENTRIES, PROBLEMS):
        limit.value()


def receive(source: IO[bytes], wanted: Sequence[Download]) -> list[str]:
    """Unpack the archive of a script's files, and move them to their places.

    Returns:
        The files that were not copied, each with the reason: they were not there, or can't be stored here.

    Raises:
        BadArchive: the archive is damaged, too large or too slow. Nothing was changed.
        ClusterError: the archive is incomplete. Nothing was changed.
    """
    try:
        with contextlib.ExitStack() as stack:
            stages = [stack.enter_context(_stage(download)) for download in wanted]
            problems = _Archive(source, stages).unpack()
            for stage in stages:
                problems += stage.place()
            return problems
    except OSError as error:
        places = ", ".join(quoted(str(download.local)) for download in wanted)
        return [f"its files can't be stored in {places}: {error.strerror or error}"]


@contextlib.contextmanager
def _stage(download: Download) -> Iterator[_Stage]:
    folder = Path(tempfile.mkdtemp(prefix=".tfk8s-", dir=beside(download.local)))
    try:
        with FolderWriter(folder) as writer:
            yield _Stage(download, folder, writer)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def beside(local: Path) -> Path:
    """Return the folder on the file system of a place, in which what goes there is unpacked."""
    return local if local.is_dir() else _existing_parent(local)


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in Path(os.path.abspath(path)).parents if os.path.lexists(parent))  # noqa: PTH100


@dataclass
class _Stage:
    """A folder in which a download is unpacked: a folder's files, or a single file as `_FILE`."""

    download: Download
    folder: Path
    writer: FolderWriter
    is_empty: bool = True
    is_file: bool = False

    def place(self) -> list[str]:
        """Move what was unpacked to its place, over what is there; return what could not be moved."""
        local = self.download.local
        if self.is_empty:
            return []
        if self.is_file:
            local = local / PurePosixPath(self.download.path).name if local.is_dir() else local
            local.parent.mkdir(parents=True, exist_ok=True)
            with FolderWriter(local.parent) as parent:
                parent.take(self.folder / _FILE, local.name)
            return []
        local.mkdir(parents=True, exist_ok=True)
        problems = []
        with FolderWriter(local) as target:
            for folder, folders, names in os.walk(self.folder):
                inside = "" if folder == str(self.folder) else os.path.relpath(folder, self.folder)
                try:
                    target.make_folder(inside)
                    for name in names:
                        target.take(Path(folder, name), f"{inside}/{name}".lstrip("/"))
                except LinkInPlace as error:
                    folders.clear()
                    link = quoted(f"{local}/{error.filename}")
                    problems.append(f"{quoted(self.name(inside))} was not copied: {link} is a link")
        return problems

    def name(self, path: str) -> str:
        """Return a path as the script knows it."""
        return f"{self.download.path}/{path}" if path else self.download.path


class _Damaged(Exception):
    """An archive is not what `packed.pack` writes."""


class _Archive:
    """Reads an archive into stages. Each of its sizes, names and texts may be a lie.

    Args:
        source: the archive.
        stages: one for each download.
    """

    def __init__(self, source: IO[bytes], stages: Sequence[_Stage]) -> None:
        self._source, self._stages = source, stages
        self._size, self._entries, self._problems = SIZE.value(), ENTRIES.value(), PROBLEMS.value()
        self._count, self._start = 0, time.monotonic()
        self._links = self._folders = 0

    def unpack(self) -> list[str]:
        """Unpack all files; return the files that are not in the archive, each with the reason.

        Raises:
            BadArchive: the archive is damaged, too large or too slow.
            ClusterError: the archive is incomplete.
            OSError: this machine can't store the files.
        """
        try:
            for _ in range(self._entries + 1):
                kind, *values = self._entry()
                if kind == "end":
                    if self._links > self._problems:
                        log.warning("%d more links were not copied", self._links - self._problems)
                    return self._texts(*values)
                self._unpack_one(kind, *values)
        except EOFError as error:
            raise ClusterError("the files did not arrive whole: unexpected end") from error
        except (_Damaged, ValueError, TypeError, RecursionError) as error:
            reason = str(error) if isinstance(error, _Damaged | InvalidPath) else "the archive is damaged"
            raise BadArchive(f"the files did not arrive whole: {reason}") from error
        raise _too_much(ENTRIES, "files")

    def _entry(self) -> list[object]:
        line = self._source.readline(_LINE_LIMIT)
        self._check(len(line))
        if not line.endswith(b"\n"):
            raise EOFError if len(line) < _LINE_LIMIT else _Damaged("a name is too long")
        entry = json.loads(line)
        if not isinstance(entry, list) or not entry:
            raise _Damaged("the archive is damaged")
        return entry

    def _unpack_one(self, kind: object, name: object, size: object = 0, is_executable: object = False) -> None:
        if not (isinstance(name, str) and isinstance(size, int) and size >= 0):
            raise _Damaged("the archive is damaged")
        number, _, path = name.partition("/")
        if not (number.isascii() and number.isdecimal() and int(number) < len(self._stages)):
            raise _Damaged(f"unexpected file {quoted(name)}")
        stage = self._stages[int(number)]
        self._folders += path.count("/")
        if self._folders > _FOLDERS * self._entries:
            raise _too_much(ENTRIES, "folders in their paths", _FOLDERS)
        if stage.writer.made > self._entries:
            raise _too_much(ENTRIES, "folders")
        if kind == "link":
            self._links += 1
            if self._links <= self._problems:
                log.warning("%s was not copied: a link", quoted(stage.name(path)))
            return
        stage.is_empty = False
        if kind == "folder":
            stage.writer.make_folder(path)
        elif kind == "file":
            stage.is_file = stage.is_file or not path
            with stage.writer.file(path or _FILE, is_executable=bool(is_executable)) as file:
                for block in self._content(size):
                    file.write(block)
        else:
            raise _Damaged(f"{quoted(str(kind))} is no kind of file")

    def _content(self, size: int) -> Iterator[bytes]:
        self._check(size, has_come=False)
        while size:
            block = self._source.read(min(size, _BLOCK))
            if not block:
                raise EOFError
            self._check(len(block))
            size -= len(block)
            yield block

    def _check(self, size: int, *, has_come: bool = True) -> None:
        """Check that an archive stays within its limits with `size` more bytes."""
        if self._count + size > self._size:
            raise _too_much(SIZE, "bytes")
        self._count += size if has_come else 0
        if self._count < _LEAST_RATE * (time.monotonic() - self._start - _PATIENCE):
            raise _Damaged(f"they came slower than {_LEAST_RATE:g} bytes a second")

    def _texts(self, texts: object) -> list[str]:
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise _Damaged("the archive is damaged")
        more = len(texts) - self._problems
        return [*texts[: self._problems], *([f"{more} more files were not copied"] if more > 0 else [])]


def _too_much(limit: Limit, noun: str, times: int = 1) -> BadArchive:
    most = f"{times} × {limit.text}" if times > 1 else limit.text
    return BadArchive(
        f"the files have more than {most} {noun}",
        help=f"{limit.variable} sets another limit; or copy fewer files",
    )
