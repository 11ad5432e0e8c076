"""Unpacks the folder of a user's script in a pod. Standard library only: this file runs in pods."""

from __future__ import annotations

import io
import shutil
import tarfile
import zlib
from pathlib import Path

from tfk8s.task.programs.folder_writer import FolderWriter, InvalidPath


def unpack(archive: Path) -> None:
    """Unpack an archive of `script_archive.pack` into the current folder.

    Args:
        archive: the file, or a folder with its parts, whose names are in their order.

    Raises:
        tarfile.TarError: the archive is incomplete, or has more than folders and regular files.
        InvalidPath: a path leads out of the folder.
        OSError: the files can't be written.
    """
    try:
        with _open(archive) as files, FolderWriter(Path()) as folder:
            for member in files:
                _add(folder, files, member)
    except (EOFError, zlib.error, ArithmeticError, ValueError) as error:  # of tarfile's parts, for damaged archives
        if isinstance(error, InvalidPath):
            raise
        raise tarfile.ReadError(f"the archive is damaged: {error}") from error


def _open(archive: Path) -> tarfile.TarFile:
    if archive.is_file():
        return tarfile.open(archive)
    parts = sorted(archive.glob("[!.]*"))  # kubelet's own folders there begin with dots
    return tarfile.open(fileobj=io.BytesIO(b"".join(part.read_bytes() for part in parts)))


def _add(folder: FolderWriter, files: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    if member.isdir():
        folder.make_folder(member.name)
        return
    content = files.extractfile(member) if member.isreg() else None
    if content is None:
        raise tarfile.ReadError(f"{member.name} is no regular file")
    with folder.file(member.name, is_executable=bool(member.mode & 0o100)) as file:
        shutil.copyfileobj(content, file)
