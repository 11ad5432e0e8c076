"""Unpacks the folder of a user's script in a pod. Standard library only: this file runs in pods."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path) -> None:
    """Unpack an archive into the current folder."""
    with tarfile.open(archive) as files:
        if hasattr(tarfile, "data_filter"):  # Python 3.12, and later releases of older versions
            files.extraction_filter = tarfile.data_filter
        files.extractall()  # noqa: S202 - the user's own folder, packed by `script_archive.pack`
