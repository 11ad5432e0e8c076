"""Copies of files that scripts leave: `PATH:LOCAL` as users write it, and the way of an archive to its place.

`sessions.pod.file_server.pack` makes the archive, in a script's pod or on this machine. An archive is unpacked beside
its place first. So a broken stream or a full disk leaves the files as they were.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from tfk8s.core.script import Download, Outcome
from tfk8s.errors import ClusterError, InvalidInput, quoted
from tfk8s.log import log
from tfk8s.sessions.pod import file_server

_FILE = "file"  # the name of a single file until it is in its place


def parse(texts: Sequence[str]) -> tuple[Download, ...]:
    """Return what to copy, from `PATH` or `PATH:LOCAL`. Without LOCAL, a relative PATH has the same place here.

    Raises:
        InvalidInput: a text is invalid, nothing can be written to its LOCAL, or Python is too old.
    """
    if texts:
        require_safe_tarfile("--get")
    parsed = tuple(_parse(text) for text in texts)
    places = [os.path.abspath(download.local) for download in parsed]  # noqa: PTH100 - it resolves no links
    for text, place in zip(texts, places, strict=True):
        if places.count(place) > 1:
            raise InvalidInput(f"--get {quoted(text)}: another --get copies to {quoted(place)}, too")
    return parsed


def require_safe_tarfile(option: str) -> None:
    """Require a Python that unpacks archives of scripts safely.

    Args:
        option: the option that asks for files of a script.

    Raises:
        InvalidInput: Python is too old.
    """
    if not hasattr(tarfile, "data_filter"):
        raise InvalidInput(f"{option} needs Python 3.11.4 or later, whose tarfile unpacks safely")


def _parse(text: str) -> Download:
    path, colon, local = text.partition(":")
    pure = PurePosixPath(path)
    if not path or (colon and not local):
        raise InvalidInput(f"--get {quoted(text)} is not PATH or PATH:LOCAL", help="for example --get model:results")
    if ".." in pure.parts:
        raise InvalidInput(f"--get {quoted(text)} leads out of the script's folder", help="name the file's whole path")
    if not local and not pure.name and pure.is_absolute():
        raise InvalidInput(f"--get {quoted(text)} names no file", help="for example --get /tmp/model")
    try:
        place = Path(local).expanduser() if local else Path(pure.name if pure.is_absolute() else path)
    except RuntimeError as error:
        home = quoted(local.partition("/")[0])
        raise InvalidInput(f"--get {quoted(text)}: {home} is no home folder", help="name the whole path") from error
    parent = _beside(place)
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InvalidInput(f"--get {quoted(text)}: {quoted(str(parent))} is not a folder that you may write")
    return Download(path, place)


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in Path(os.path.abspath(path)).parents if os.path.lexists(parent))  # noqa: PTH100


def copy_here(wanted: Sequence[Download], outcome: Outcome) -> Outcome:
    """Copy what a script on this machine has left in the current folder; return how the script ended.

    What is in its place already stays as it is.

    Raises:
        ClusterError: the script succeeded, but not everything could be copied.
    """
    if not wanted:
        return outcome
    others = [download for download in wanted if not _is_in_place(download)]
    inside = {download.path: place for download in others if (place := _place_inside(download.path, others))}
    away = [download for download in others if download.path not in inside]
    read, write = os.pipe()

    def send() -> None:
        with contextlib.suppress(OSError), open(write, "wb") as sink:  # then the archive ends too early
            file_server.pack([download.path for download in away], sink)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    with open(read, "rb") as source:
        problems = receive(source, away)
    thread.join()
    problems += [f"{quoted(path)} was not copied: it contains {quoted(place)}" for path, place in inside.items()]
    return report(problems, outcome)


def _is_in_place(download: Download) -> bool:
    return Path(download.path).exists() and os.path.realpath(download.path) == os.path.realpath(download.local)


def _place_inside(path: str, wanted: Sequence[Download]) -> str:
    """Return the first place that is in a folder, or "". The copy of such a folder would contain itself."""
    folder = os.path.realpath(path)
    places = (download.local for download in wanted)
    return next((str(place) for place in places if Path(os.path.realpath(_beside(place))).is_relative_to(folder)), "")


def report(problems: Sequence[str], outcome: Outcome) -> Outcome:
    """Return how a script ended. Problems with its files are warnings if the script itself has failed.

    Raises:
        ClusterError: there are problems with the files of a script that succeeded.
    """
    if problems and outcome.code == 0:
        raise ClusterError("the script succeeded, but " + "; ".join(problems))
    for problem in problems:
        log.warning("%s", problem)
    return outcome


@dataclass
class _Stage:
    """A folder in which a download is unpacked: a folder's files, or a single file as `_FILE`."""

    download: Download
    folder: Path
    is_empty: bool = True
    is_file: bool = False

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        """Unpack a member of the archive.

        Args:
            archive: the archive.
            member: the member.
            path: the member's path in the folder; "" for the folder or the file itself.

        Raises:
            tarfile.FilterError: the member would lead out of the folder.
        """
        self.is_empty = False
        self.is_file = self.is_file or (not path and not member.isdir())
        if path or self.is_file:
            member.name = path or _FILE
            archive.extract(member, self.folder, filter=tarfile.data_filter)

    def place(self) -> None:
        """Move what was unpacked to its place, over what is there."""
        local = self.download.local
        if self.is_empty:
            return
        if self.is_file:
            local = local / PurePosixPath(self.download.path).name if local.is_dir() else local
            local.parent.mkdir(parents=True, exist_ok=True)
            (self.folder / _FILE).replace(local)
            return
        for parent, folders, names in os.walk(self.folder):
            place = local / os.path.relpath(parent, self.folder)
            place.mkdir(parents=True, exist_ok=True)
            links = [name for name in folders if Path(parent, name).is_symlink()]
            for name in [*names, *links]:
                Path(parent, name).replace(place / name)


def receive(source: IO[bytes], wanted: Sequence[Download]) -> list[str]:
    """Unpack the archive of a script's files, and move them to their places.

    Returns:
        The files that were not copied, each with the reason: the script did not leave them, or this machine can't store
        them.

    Raises:
        ClusterError: the archive is incomplete. Nothing was changed.
    """
    try:
        with contextlib.ExitStack() as stack:
            stages = {str(number): stack.enter_context(_stage(download)) for number, download in enumerate(wanted)}
            problems = _unpack(source, stages)
            for stage in stages.values():
                stage.place()
            return problems
    except tarfile.TarError as error:
        raise ClusterError(f"the script's files did not arrive whole: {error}") from error
    except OSError as error:
        places = ", ".join(quoted(str(download.local)) for download in wanted)
        return [f"its files can't be stored in {places}: {error.strerror or error}"]


@contextlib.contextmanager
def _stage(download: Download) -> Iterator[_Stage]:
    folder = Path(tempfile.mkdtemp(prefix=".tfk8s-", dir=_beside(download.local)))
    try:
        yield _Stage(download, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _beside(local: Path) -> Path:
    """Return the folder on the file system of a place, in which what goes there is unpacked."""
    return local if local.is_dir() else _existing_parent(local)


def _unpack(source: IO[bytes], stages: Mapping[str, _Stage]) -> list[str]:
    """Unpack an archive; return the files that are not in it, or that can't be unpacked, each with the reason."""
    left_out: list[str] = []
    with tarfile.open(fileobj=source, mode="r|") as archive:
        for member in archive:
            number, _, path = member.name.partition("/")
            if number == file_server.PROBLEMS:
                texts = archive.extractfile(member)
                assert texts is not None
                return [*json.load(texts), *left_out]
            if number not in stages:
                raise tarfile.ReadError(f"unexpected member {quoted(member.name)}")
            try:
                stages[number].add(archive, member, path)
            except tarfile.FilterError:
                name = quoted(f"{stages[number].download.path}/{path}")
                left_out.append(f"{name} was not copied: it is a link that leads out of the folder")
    raise tarfile.ReadError("unexpected end")
