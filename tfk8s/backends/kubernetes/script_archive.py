"""Packs a script's folder into one archive, which is unpacked in the script's pod."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tfk8s.errors import InvalidInput

MAX_BYTES = 100_000_000
REQUIREMENTS_FILE = "tfk8s-requirements.txt"
_EXCLUDED = {".git", "__pycache__", "node_modules", ".venv", "venv"}


def pack(script: Path, requirements: Path | None = None) -> bytes:
    """Return a script's folder as a compressed tar archive; the same folder gives the same bytes.

    A file of requirements outside of the folder is added as `REQUIREMENTS_FILE`.

    Raises:
        InvalidInput: the script does not exist, or its folder is too large.
    """
    if not script.is_file():
        raise InvalidInput(f'there is no script "{script}"')
    folder = script.resolve().parent
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=3, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", dereference=True) as archive,
    ):
        for path in files(folder):
            archive.add(path, path.relative_to(folder), filter=_anonymous)
        if requirements and requirements_in_folder(script, requirements) == REQUIREMENTS_FILE:
            archive.add(requirements, REQUIREMENTS_FILE, filter=_anonymous)
    return buffer.getvalue()


def requirements_in_folder(script: Path, requirements: Path) -> str:
    """Return the path of a file of requirements in the archive."""
    folder, path = script.resolve().parent, requirements.resolve()
    if path.is_relative_to(folder) and _EXCLUDED.isdisjoint(path.relative_to(folder).parts):
        return path.relative_to(folder).as_posix()
    return REQUIREMENTS_FILE


def files(folder: Path) -> list[Path]:
    """Return the files of a folder that are archived, in order.

    Raises:
        InvalidInput: the files are too large together.
    """
    paths, total = [], 0
    for path in _walk(folder):
        paths.append(path)
        total += path.stat().st_size
        if total > MAX_BYTES:
            raise InvalidInput(
                f'the folder "{folder}" has more than {MAX_BYTES // 10**6} MB, and is copied with its script',
                help="put the script into a folder of its own, and its data into a volume of the job file",
            )
    return paths


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _EXCLUDED)
        yield from (path for name in sorted(names) if (path := Path(parent, name)).is_file())


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode |= 0o644
    return member
