"""The files of `--get` that a script in a warm pod has left. Standard library only: this file runs in pods."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from tfk8s.sessions.forks import processes
from tfk8s.task.files import packed

_SINK = 3  # a descriptor


def pack(paths: Sequence[str], folder: Path) -> int:
    """Return a descriptor from which the archive of files can be read, as a fork of this process writes it.

    Args:
        paths: the files and folders.
        folder: the script's working folder, where relative paths begin.
    """
    reader, writer = os.pipe()

    def run() -> None:
        with contextlib.suppress(OSError):  # a script that has not begun has none
            os.chdir(folder)
        with contextlib.suppress(OSError), open(_SINK, "wb") as sink:  # nobody reads any more
            packed.pack(paths, sink)

    processes.run_in_fork(run, [0, 1, 2, writer])
    os.close(writer)
    return reader
