"""Packs a script's folder into one archive, which is unpacked in the script's pod."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfk8s import spans
from tfk8s.backends.kubernetes.scripts import sent_folder
from tfk8s.backends.kubernetes.scripts.sent_folder import SentFolder
from tfk8s.log import log

REQUIREMENTS_FILE = "tfk8s-requirements.txt"
COMPRESS_LEVEL = 3
TAR_END = bytes(2 * tarfile.BLOCKSIZE)


def pack(script: Path, requirements: Path | None = None) -> bytes:
    """Return a script's folder as a compressed tar archive; the same folder gives the same bytes.

    A file of requirements outside of the folder is added as `REQUIREMENTS_FILE`.

    A message says what is sent, and which credentials are left out.

    Raises:
        InvalidInput: the script does not exist or is ignored, its folder can't be sent, or the file of requirements is
            a link that leads elsewhere.
    """
    folder = sent_folder.of_script(script)
    sent_folder.require_script(folder, script)
    if requirements:
        sent_folder.require_requirements(script, requirements)
    own = requirements and requirements_in_folder(script, requirements) == REQUIREMENTS_FILE
    found = sent_folder.find(folder)
    found.report_credentials()
    log.info("%s", found)
    return pack_folder(found, {REQUIREMENTS_FILE: requirements} if requirements and own else {})


def require_copy(script: Path) -> None:
    """Check that a script can be copied with its folder.

    Raises:
        InvalidInput: the script does not exist or is ignored, or its folder can't be sent.
    """
    folder = sent_folder.of_script(script)
    sent_folder.require_script(folder, script)
    sent_folder.find(folder)


def pack_folder(found: SentFolder, more: Mapping[str, Path] | None = None) -> bytes:
    """Return the files of a folder as a compressed tar archive.

    Args:
        found: the files.
        more: further files, by their names in the archive.
    """
    buffer = io.BytesIO()
    with spans.part("pack folder") as part:
        with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=COMPRESS_LEVEL, mtime=0) as compressed:
            for _, member in members(found, more):
                compressed.write(member)
            compressed.write(TAR_END)
        part[spans.FOLDER_SIZE] = len(buffer.getbuffer())
    return buffer.getvalue()


def members(found: SentFolder, more: Mapping[str, Path] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield the paths of files in a tar archive, with their headers and contents; arguments as of `pack_folder`."""
    inside = {path.relative_to(found.folder).as_posix(): path for path in found.files}
    for name, path in {**inside, **(more or {})}.items():
        archive = tarfile.open(fileobj=(buffer := io.BytesIO()), mode="w", dereference=True)  # noqa: SIM115 - its end would follow
        archive.add(path, name, filter=_anonymous)
        yield name, buffer.getvalue()


def requirements_in_folder(script: Path, requirements: Path) -> str:
    """Return the path of a file of requirements in the archive."""
    folder, path = script.resolve().parent, requirements.resolve()
    if path.is_relative_to(folder):
        inside, spec = path.relative_to(folder), sent_folder.ignored(folder)
        if not any(map(spec.match_file, [inside.as_posix(), *(f"{parent}/" for parent in inside.parents[:-1])])):
            return inside.as_posix()
    return REQUIREMENTS_FILE


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.mode & 0o100 else 0o644  # the umask of who has made the folder does not count
    return member
