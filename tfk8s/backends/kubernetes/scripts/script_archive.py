"""Packs a script's folder into one archive, which is unpacked in the script's pod."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pathspec import GitIgnoreSpec

from tfk8s.errors import InvalidInput, quoted

MAX_BYTES = 100_000_000
REQUIREMENTS_FILE = "tfk8s-requirements.txt"
IGNORE_FILE = ".tfk8signore"
_IGNORED = (".git/", "__pycache__/", "node_modules/", ".venv/", "venv/")


def pack(script: Path, requirements: Path | None = None) -> bytes:
    """Return a script's folder as a compressed tar archive; the same folder gives the same bytes.

    A file of requirements outside of the folder is added as `REQUIREMENTS_FILE`.

    Raises:
        InvalidInput: the script does not exist or is ignored, or its folder is too large.
    """
    folder = script.resolve().parent
    require_script(folder, script)
    own = requirements and requirements_in_folder(script, requirements) == REQUIREMENTS_FILE
    return pack_folder(folder, {REQUIREMENTS_FILE: requirements} if requirements and own else {})


def require_script(folder: Path, script: Path) -> None:
    """Check that the archive of a folder contains a script.

    Raises:
        InvalidInput: the script does not exist or is ignored.
    """
    if not script.is_file():
        raise InvalidInput(f'there is no script "{script}"')
    name = os.path.relpath(script.parent.resolve() / script.name, folder.resolve())
    if name.startswith(os.pardir):
        raise InvalidInput(f'the script "{script}" is outside of the folder "{folder}", with which it is copied')
    if ignored(folder).match_file(name):
        raise InvalidInput(f"{folder / IGNORE_FILE} leaves out the script {quoted(name)}")


def pack_folder(folder: Path, more: Mapping[str, Path] | None = None) -> bytes:
    """Return a folder as a compressed tar archive.

    Args:
        folder: the folder.
        more: further files, by their names in the archive.

    Raises:
        InvalidInput: the folder is too large.
    """
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=3, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", dereference=True) as archive,
    ):
        for path in files(folder):
            archive.add(path, path.relative_to(folder), filter=_anonymous)
        for name, path in (more or {}).items():
            archive.add(path, name, filter=_anonymous)
    return buffer.getvalue()


def requirements_in_folder(script: Path, requirements: Path) -> str:
    """Return the path of a file of requirements in the archive."""
    folder, path = script.resolve().parent, requirements.resolve()
    if path.is_relative_to(folder):
        inside, spec = path.relative_to(folder), ignored(folder)
        if not any(map(spec.match_file, [inside.as_posix(), *(f"{parent}/" for parent in inside.parents[:-1])])):
            return inside.as_posix()
    return REQUIREMENTS_FILE


def ignored(folder: Path) -> GitIgnoreSpec:
    """Return the patterns of what is left out of the archive: the defaults, then the folder's `IGNORE_FILE`.

    Raises:
        InvalidInput: the file can't be read, or has an invalid pattern.
    """
    file = folder / IGNORE_FILE
    try:
        lines = file.read_text().splitlines() if file.exists() else []
    except OSError as error:
        raise InvalidInput(f"{file} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8 text", help="save the file in UTF-8") from error
    for number, line in enumerate(lines, 1):
        try:
            GitIgnoreSpec.from_lines([line])
        except (ValueError, re.error) as error:
            raise InvalidInput(f"{file}:{number}: {quoted(line)} is not a pattern of gitignore") from error
    return GitIgnoreSpec.from_lines([*_IGNORED, *lines])


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
                help=f"name in {IGNORE_FILE} what the script does not need (gitignore's rules); "
                "or put its data into a volume of the job file",
            )
    return paths


def _walk(folder: Path) -> Iterator[Path]:
    spec = ignored(folder)
    for parent, folders, names in os.walk(folder):
        inside = os.path.relpath(parent, folder)
        folders[:] = sorted(name for name in folders if not spec.match_file(f"{inside}/{name}/"))
        kept = sorted(name for name in names if not spec.match_file(f"{inside}/{name}"))
        yield from (path for name in kept if (path := Path(parent, name)).is_file())


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode |= 0o644
    return member
