"""The history of local clusters: their supervisor writes it, and a later command the end that no supervisor saw."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfk8s.backends.history import files, index, writing
from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.local import cluster_status
from tfk8s.backends.local.record import Record
from tfk8s.backends.local.state import Folder, try_locked
from tfk8s.backends.local.supervision import suspended_file
from tfk8s.backends.local.supervision.suspended_file import End
from tfk8s.core import naming, programs
from tfk8s.core.history import redaction
from tfk8s.core.history.facts import REMOVED
from tfk8s.core.resources import named
from tfk8s.core.spec import JobFile

_MAX_SCRIPTS = 100  # whose logs are kept: the last ones
_LOST = "lost: its supervisor was gone"


def begin(record: Record) -> EntryFiles | None:
    """Begin the entry of a cluster that is about to start; None if the history can't be written."""
    with files.unless_unwritable():
        entry = writing.begin(record.name, writing.HERE, record.job_file)
        entry.live.mkdir(mode=0o700)
        return entry
    return None


def of(folder: Folder) -> EntryFiles | None:
    """Return the entry of the cluster in a folder; None if it has none."""
    kept = folder.kept
    return EntryFiles(kept.parent) if kept is not None and (kept.parent / "facts.jsonl").exists() else None


def script_log(folder: Folder, name: str) -> Path | None:
    """Return the file for what a script prints, in the entry of its cluster; None without an entry."""
    return None if folder.kept is None else folder.kept / "logs" / f"{name}.log"


def remove(folder: Folder, reason: str = "") -> None:
    """Remove a cluster's folder, and complete its entry.

    Args:
        folder: the cluster's, whose processes have ended.
        reason: why the cluster ended, if its supervisor has not said so; "" if that was killed.
    """
    entry, ended = of(folder), suspended_file.end(folder)
    reason = reason or (REMOVED if suspended_file.read(folder) else "")
    folder.remove()
    if entry is not None:
        with files.unless_unwritable():
            _complete(entry, reason, ended)


def _complete(entry: EntryFiles, reason: str = "", ended: End | None = None) -> None:
    """Add the end that is missing, and compress the logs of a cluster that is gone."""
    _end(entry, reason, ended)
    entry.pack()
    index.prune_daily()


def _end(entry: EntryFiles, reason: str, ended: End | None) -> None:
    """Add the end that is missing: at a limit that a suspended cluster has reached, now, or when it was last seen."""
    if ended:
        writing.end(entry, f"has ended {ended.reason}", moment=ended.moment)
    else:
        writing.end(entry, reason or _LOST, lost=not reason, moment=None if reason else entry.last_time())


def complete_lost(entries: Iterable[EntryFiles]) -> None:
    """End the entries whose clusters nobody ended, unless a command of this user changes clusters just now.

    Args:
        entries: open ones of this machine.
    """
    with files.unless_unwritable(), try_locked() as is_locked:
        for entry in entries if is_locked else ():
            folder = Folder(files.root().parent / entry.name)
            if of(folder) != entry:
                _complete(entry)
            elif folder.supervisor() is None and suspended_file.read(folder) is None:
                _end(entry, "", suspended_file.end(folder))


class LocalHistory:
    """The part of the backend that finds entries."""

    def find(self, name: str) -> EntryFiles | None:
        """Return the entry of a cluster; None if an earlier tfk8s has started it, or without a cluster."""
        return of(Folder(files.root().parent / name)) if naming.is_dns_label(name) else None

    def join(self, name: str, job_file: JobFile | None = None, *, is_new: bool = False) -> EntryFiles | None:
        """Return the same: the entry begins before its supervisor."""
        del job_file, is_new
        return self.find(name)

    def seen(self, name: str) -> None:
        """Do nothing: the supervisor sees the tasks."""

    def share(self, name: str) -> None:
        """Do nothing: clusters on this machine have no shared history."""


class HistoryKeeper:
    """The part of the supervisor that writes the entry."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._entry = folder, of(folder)

    def script_ended(self, command: str, progress: Path, exit_code: int | None) -> None:
        """Add the end of a script with its last progress, and keep the last scripts' logs."""
        if self._entry is not None:
            with files.unless_unwritable():
                self._keep_logs(progress.name)
                code = None if exit_code is None else programs.exit_code(exit_code)
                last = str(cluster_status.read_progress(progress) or "")
                self._entry.add(
                    "script", name=progress.name, command=redaction.text(command), exit_code=code, progress=last
                )

    def _keep_logs(self, name: str) -> None:
        """Remove the logs of scripts that have printed nothing, or after which others ran; `name` has just ended."""
        if (log := script_log(self._folder, name)) is None:
            return
        log.with_suffix(".new").unlink(missing_ok=True)  # it was killed while it made its log shorter
        with contextlib.suppress(FileNotFoundError):  # the script has never begun
            if not log.stat().st_size:
                log.unlink()
        logs = sorted(log.parent.glob("script-??????.log"), key=lambda path: path.stat().st_mtime)
        for path in logs[:-_MAX_SCRIPTS]:
            path.unlink()

    def scaled(self, record: Record) -> None:
        """Add what the cluster requests from now on."""
        if self._entry is not None:
            with files.unless_unwritable():
                self._entry.add("requests", requests=writing.amounts(named(record.job_file)))

    def stops(self, reason: str, record: Record, tasks: list[dict[str, Any]]) -> None:
        """Add the tasks as they are before the end, and the end; a suspension is none, and requests nothing.

        Args:
            reason: why the cluster ends.
            record: the cluster's.
            tasks: `TaskProcess.describe` of each task.
        """
        if self._entry is None:
            return
        with files.unless_unwritable():
            status = cluster_status.of_tasks(self._folder, record, tasks)
            writing.add_status(self._entry, status)
            if status.suspended is None:
                writing.end(self._entry, reason)
