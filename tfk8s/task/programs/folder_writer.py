"""Writes files below one folder, for paths that others chose. Standard library only: this file runs in pods.

No path leaves the folder: the folder is opened once, each folder below it is opened from the one above it, and links
are never followed, nor those that appear meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

MAX_DEPTH = 100  # of folders; each costs a system call for each file


class LinkInPlace(OSError):
    """A link stands where a folder is needed."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "a link is in the place of a folder", path)


class InvalidPath(ValueError):
    """A path leads elsewhere, or is too deep."""


class FolderWriter:
    """Writes below a folder. Paths are relative and have "/" between their parts.

    Args:
        folder: an existing folder. A link that leads to the folder is followed, because the caller chose the link.

    Raises:
        OSError: the folder can't be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.made = 0  # folders

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, unless they are there; "" is the folder itself.

        Raises:
            InvalidPath: the path leads elsewhere, or is too deep.
            LinkInPlace: a link is in the place of a folder.
            OSError: the folder can't be made.
        """
        with self._opened(split(path) if path else ()):
            pass

    @contextlib.contextmanager
    def file(self, path: str, *, is_executable: bool = False) -> Iterator[IO[bytes]]:
        """Yield a new file for writing, in place of a file or a link that is there.

        Raises:
            InvalidPath, LinkInPlace, OSError: as `make_folder`.
        """
        *above, name = split(path)
        with self._opened(above) as folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o777 if is_executable else 0o666, dir_fd=folder)
            with open(descriptor, "wb") as file:
                yield file

    def take(self, source: Path, path: str) -> None:
        """Move a file to a path, in place of a file or a link that is there.

        Args:
            source: a file on the same file system.
            path: its new place.

        Raises:
            InvalidPath, LinkInPlace, OSError: as `make_folder`.
        """
        *above, name = split(path)
        with self._opened(above) as folder:
            os.rename(source, name, dst_dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self, parts: Sequence[str]) -> Iterator[int]:
        """Yield the descriptor of a folder, made if it is missing."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.dup(self._root)
        try:
            for number, part in enumerate(parts, 1):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
                    self.made += 1
                try:
                    below = os.open(part, flags, dir_fd=folder)
                except OSError as error:
                    if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
                        raise LinkInPlace("/".join(parts[:number])) from error
                    raise
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)


def split(path: str) -> list[str]:
    """Return the parts of a path.

    Raises:
        InvalidPath: the path is absolute, has a part such as "..", or has more than `MAX_DEPTH` parts.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InvalidPath("a path leads out of the folder")
    if len(parts) > MAX_DEPTH:
        raise InvalidPath(f"a path has more than {MAX_DEPTH} folders")
    return parts
