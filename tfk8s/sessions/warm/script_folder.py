"""The own folder of a script in a warm pod. Standard library only: this file runs in pods."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tfk8s.core import naming
from tfk8s.sessions import error_names

_ROOM = 2  # an archive and its files need at least twice the archive's size


class NoRoom(Exception):
    """The pod has no room for an archive."""


class ScriptFolder:
    """A folder with the sent archive, the script's files, and what the script leaves for its relay.

    Args:
        path: the folder, which `begin` makes. Its name is the script's.

    Attributes:
        path: the folder.
        files: the working folder.
        progress: the file for the script's progress.
        log: the file of the script's output.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.files, self.progress, self.log = path, path / "files", path / "progress", path / "log"
        self._archive: IO[bytes] | None = None  # in a file, because all scripts of the pod share its memory
        self._size = 0
        self._recording: Path | None = None  # of `--trace`, which is outside of the folder

    def begin(self, size: int) -> None:
        """Make the folder, for an archive of this size.

        Raises:
            NoRoom: the pod has no room for the archive.
            OSError: the folder can't be made.
        """
        for folder in (self.files, self.path / "tmp"):
            folder.mkdir(parents=True, mode=0o700)
        if size > shutil.disk_usage(self.path).free // _ROOM:
            raise NoRoom
        self._archive, self._size = (self.path / "script.tar.gz").open("wb"), size

    def store(self, data: bytes) -> None:
        """Keep a part of the archive, if one is expected.

        Raises:
            OSError: the part can't be kept.
        """
        if self._archive is not None:
            self._archive.write(data)

    def take_archive(self) -> Path | None:
        """Return the file of the archive, once, when the archive is complete.

        Raises:
            OSError: the rest of the archive can't be kept.
        """
        if self._archive is None or self._archive.tell() < self._size:
            return None
        archive, self._archive = self._archive, None
        archive.close()
        return Path(archive.name)

    def environment(self, archive: Path, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the script: the pod's, the given ones, and those that name what is here."""
        if recording := given.get("TFK8S_TRACE", "").partition(":")[2]:
            self._recording = Path(recording)
        return {
            **os.environ, "TMPDIR": str(self.path / "tmp"), **given, "TFK8S_ARCHIVE": str(archive),
            error_names.VARIABLE: str(self.path / "verdict"), naming.SHARED_POD: self.path.name,
            "TFK8S_PROGRESS": str(self.progress),
        }  # fmt: skip

    def note(self) -> str:
        """Return the note that the script's runner has left; "" without one."""
        with contextlib.suppress(OSError):
            return (self.path / "verdict").read_text()
        return ""

    def remove(self) -> None:
        """Remove the folder, and the recording of the script's steps."""
        if self._archive is not None:
            with contextlib.suppress(OSError):
                self._archive.close()
        if self._recording is not None:
            with contextlib.suppress(OSError):
                self._recording.unlink()
        shutil.rmtree(self.path, ignore_errors=True)
