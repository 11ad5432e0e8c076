"""Copies of files that scripts leave: `PATH:LOCAL` as users write it, and the copies of scripts on this machine.

`task.files.packed` makes an archive, in a script's pod or on this machine. `task.files.received` unpacks it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from tfk8s import platforms
from tfk8s.core.script import Download, Outcome
from tfk8s.errors import ClusterError, InvalidInput, quoted
from tfk8s.log import log
from tfk8s.task.files import packed
from tfk8s.task.files.received import beside, check_limits, receive


def parse(texts: Sequence[str]) -> tuple[Download, ...]:
    """Return what to copy, from `PATH` or `PATH:LOCAL`. Without LOCAL, a relative PATH has the same place here.

    Raises:
        InvalidInput: a text is invalid, nothing can be written to its LOCAL, a limit is no quantity, or this system is
            Windows.
    """
    if texts:
        require_folders("files of scripts")
        check_limits()
    parsed = tuple(_parse(text) for text in texts)
    places = [os.path.abspath(download.local) for download in parsed]  # noqa: PTH100 - it resolves no links
    for text, place in zip(texts, places, strict=True):
        if places.count(place) > 1:
            raise InvalidInput(f"--get {quoted(text)}: another --get copies to {quoted(place)}, too")
    return parsed


def require_folders(what: str) -> None:
    """Require a system that opens files below an opened folder, as Linux and macOS do.

    Args:
        what: what needs such a system, as the subject of a sentence: a plural.

    Raises:
        InvalidInput: this system is Windows.
    """
    if os.open not in os.supports_dir_fd:
        platforms.require_linux(what)


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
    parent = beside(place)
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InvalidInput(f"--get {quoted(text)}: {quoted(str(parent))} is not a folder that you may write")
    return Download(path, place)


def copy_here(wanted: Sequence[Download], outcome: Outcome) -> Outcome:
    """Copy what a script on this machine has left in the current folder; return how the script ended.

    What is in its place already stays as it is.

    Raises:
        ClusterError: the script succeeded, but not everything could be copied.
    """
    return report(copy_all(wanted), outcome)


def copy_all(wanted: Sequence[Download], folder: Path = Path()) -> list[str]:
    """Copy files of this machine, as `copy_here` does; return what was not copied, with the reasons.

    Args:
        wanted: the files.
        folder: where relative paths begin.
    """
    if not wanted:
        return []
    others = [download for download in wanted if not _is_in_place(folder / download.path, download.local)]
    inside = {one.path: place for one in others if (place := _place_inside(folder / one.path, others))}
    away = [download for download in others if download.path not in inside]
    read, write = os.pipe()

    def send() -> None:
        with contextlib.suppress(OSError), open(write, "wb") as sink:  # then the archive ends too early
            packed.pack([download.path for download in away], sink, folder)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    with open(read, "rb") as source:
        problems = receive(source, away)
    thread.join()
    return problems + [f"{quoted(path)} was not copied: it contains {quoted(place)}" for path, place in inside.items()]


def _is_in_place(path: Path, local: Path) -> bool:
    return path.exists() and os.path.realpath(path) == os.path.realpath(local)


def _place_inside(path: Path, wanted: Sequence[Download]) -> str:
    """Return the first place that is in a folder, or "". The copy of such a folder would contain itself."""
    folder = os.path.realpath(path)
    places = (download.local for download in wanted)
    return next((str(place) for place in places if Path(os.path.realpath(beside(place))).is_relative_to(folder)), "")


def failure(error: ClusterError) -> str:
    """Return the problem that a script's files were not copied, for `report`."""
    return f"its files were not copied: {error}{f' ({error.help})' if error.help else ''}"


def report(problems: Sequence[str], outcome: Outcome, subject: str = "the script") -> Outcome:
    """Return how a script or a run ended. Problems with the files are warnings if the script itself has failed.

    Raises:
        ClusterError: there are problems with the files of a script that succeeded.
    """
    if problems and outcome.code == 0:
        raise ClusterError(f"{subject} succeeded, but " + "; ".join(problems))
    for problem in problems:
        log.warning("%s", problem)
    return outcome
