"""A script's folder as one file, to travel with it."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tfk8s.errors import InvalidInput

MOST_BYTES = 100_000_000
BROUGHT_REQUIREMENTS = "tfk8s-requirements.txt"
_LEFT_OUT = {".git", "__pycache__", "node_modules", ".venv", "venv"}


def pack(script: Path, requirements: Path | None = None) -> bytes:
    """Return the folder that a script stands in as a compressed tar archive; the same folder gives the same bytes.

    A file of requirements that is not in it comes along as `BROUGHT_REQUIREMENTS`.

    Raises:
        InvalidInput: there is no such script, or its folder is too large to travel.
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
        if requirements and requirements_in_folder(script, requirements) == BROUGHT_REQUIREMENTS:
            archive.add(requirements, BROUGHT_REQUIREMENTS, filter=_anonymous)
    return buffer.getvalue()


def requirements_in_folder(script: Path, requirements: Path) -> str:
    """Return where a file of requirements is, as seen from the script's folder when it has travelled."""
    folder, path = script.resolve().parent, requirements.resolve()
    if path.is_relative_to(folder) and _LEFT_OUT.isdisjoint(path.relative_to(folder).parts):
        return path.relative_to(folder).as_posix()
    return BROUGHT_REQUIREMENTS


def files(folder: Path) -> list[Path]:
    """Return the files in a folder that travel, in order.

    Raises:
        InvalidInput: they are too large together.
    """
    found, total = [], 0
    for path in _walk(folder):
        found.append(path)
        total += path.stat().st_size
        if total > MOST_BYTES:
            raise InvalidInput(
                f'the folder "{folder}" has more than {MOST_BYTES // 10**6} MB, and travels with its script',
                help="put the script into a folder of its own, and its data into a volume of the job file",
            )
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        yield from (path for name in sorted(names) if (path := Path(place, name)).is_file())


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode |= 0o644
    return member
