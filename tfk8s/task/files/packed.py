"""Packs files into one stream of entries, which `received` unpacks. Standard library only: this file runs in pods.

A stream needs no length and no tools in the container, and says what could not be read.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from tfk8s.errors import quoted

MAX_PROBLEMS = 100
_BLOCK = 1 << 16
_MISSING = (FileNotFoundError, NotADirectoryError)


def pack(paths: Sequence[str], sink: IO[bytes], folder: Path = Path()) -> None:
    """Write files and folders as entries.

    Relative paths begin in `folder`. An entry is a list in JSON on a line:

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
        _add_all(sink, str(number), folder, path, problems)
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"{len(problems) - MAX_PROBLEMS} more files were not copied"]
    _add_entry(sink, "end", problems)


def _add_entry(sink: IO[bytes], *entry: object) -> None:
    sink.write(json.dumps(entry).encode() + b"\n")


def _add_all(sink: IO[bytes], name: str, folder: Path, path: str, problems: list[str]) -> None:
    root = Path(os.path.realpath(folder / path))
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
