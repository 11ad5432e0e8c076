"""The index of the history: a row a line, so that `history` reads no entry. The last row of an entry holds."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfk8s.backends.history import files, lines
from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.own_folder import locked, open_file, read_file, unchecked_root
from tfk8s.core.history.entry import LOST, OPEN, Row, parse_row
from tfk8s.core.history.facts import MAX_AGE, MAX_ENTRIES
from tfk8s.errors import InvalidInput
from tfk8s.task.files import line_file

MAX_SIZE = 2 << 30  # bytes of all entries
_NAME = "index.jsonl"
_ROW = re.compile(
    rb'^{"name": "([a-z0-9-]+)", "number": (\d{1,10}), "started": (\d{1,12}(?:\.\d+)?), .*}$', re.MULTILINE
)
_PRUNE_INTERVAL = 86400.0
_LOCK_TIMEOUT = 2.0  # a supervisor does nothing else meanwhile


def refresh(entry: EntryFiles) -> None:
    """Append the row that an entry's facts tell now. If the index is locked for long, `prune` makes up for that."""
    row = entry.read().row
    with files.unless_unwritable(), _locked() as path:
        lines.append(path, line_file.to_line(dataclasses.asdict(row)))


def rows(name: str | None = None, last: int | None = None) -> list[Row]:
    """Return the row of each entry, the newest first. Damaged lines are left out.

    Args:
        name: only those of this name.
        last: at most so many; only these rows are parsed, of ten thousand.
    """
    try:
        content = read_file(files.root() / _NAME)
    except FileNotFoundError:
        return []
    found = {match.group(1, 2): match for match in _ROW.finditer(content)}
    chosen = [match for match in found.values() if name is None or match[1] == name.encode()]
    chosen.sort(key=lambda match: float(match[3]), reverse=True)
    parsed = filter(None, (parse_row(match[0]) for match in chosen))
    return list(itertools.islice(parsed, last))


def prune(*, older: float = MAX_AGE, most: int = MAX_ENTRIES, size: int = MAX_SIZE) -> list[Row]:
    """Remove entries that are too old or too many, but open ones; return the rows of those removed.

    An entry stays while its cluster's folder is there, which has its logs in the entry. An open entry of which nothing
    was written for `MAX_AGE` is lost: nobody of this user has looked at its cluster.

    Args:
        older: the greatest age of an entry's end, in seconds.
        most: the greatest number of entries.
        size: the greatest number of bytes of all entries.
    """
    with _locked() as path:
        listed = _listed()
        removed = [row for row in divide(listed, time.time() - older, most, size)[1] if not _has_folder(row)]
        gone = set(removed)
        kept = (row for row in listed if row not in gone)
        unfinished = path.with_suffix(".new")
        with open(open_file(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.writelines(line_file.to_line(dataclasses.asdict(row)) + b"\n" for row in kept)
        unfinished.replace(path)
    for row in removed:
        files.of_row(row).remove()
        if all(row.number >= other.number for other in listed if other.name == row.name):
            files.of_row(row).path.mkdir(mode=0o700, exist_ok=True)  # so that no later entry gets its number
    return removed


def _listed() -> list[Row]:
    """Return the rows as the facts tell them now, the newest first, also those that a kill has kept from the index."""
    known = {(row.name, row.number): row for row in rows()}
    folders = (path.parent for path in files.root().glob("*/*/facts.jsonl"))
    for entry in (EntryFiles(folder) for folder in folders if folder.name.isdecimal()):
        row = known.get((entry.name, entry.number))
        if row is None or row.state == OPEN:
            known[entry.name, entry.number] = _now(entry, row)
    return sorted(known.values(), key=lambda row: row.started, reverse=True)


def _now(entry: EntryFiles, row: Row | None) -> Row:
    last = entry.last_time()
    is_silent = last < time.time() - MAX_AGE
    try:
        row = entry.read().row
    except InvalidInput:
        row, is_silent = row or Row(name=entry.name, number=entry.number, location="", started=last), True
    is_lost = row.state == OPEN and is_silent
    return dataclasses.replace(row, state=LOST, ended=last) if is_lost else row


def _has_folder(row: Row) -> bool:
    try:
        return (unchecked_root() / row.name / "logs").samefile(files.of_row(row).live / "logs")
    except OSError:
        return False


def prune_daily() -> None:
    """Keep the limits, once a day."""
    mark = files.root() / "pruned"
    try:
        is_due = time.time() - mark.stat().st_mtime > _PRUNE_INTERVAL
    except FileNotFoundError:
        is_due = True
    if is_due:
        mark.touch(mode=0o600)
        prune()


def divide(listed: Sequence[Row], oldest: float, most: int, size: int) -> tuple[list[Row], list[Row]]:
    """Return the rows to keep, and those to remove, of rows from the newest to the oldest.

    Args:
        oldest: the earliest end, in seconds since the epoch.
        most, size: as for `prune`.
    """
    kept: list[Row] = []
    removed: list[Row] = []
    for row in listed:
        size -= row.size
        is_young = (row.started if row.ended is None else row.ended) >= oldest
        fits = row.state == OPEN or (is_young and len(kept) < most and size >= 0)
        (kept if fits else removed).append(row)
    return kept, removed


@contextlib.contextmanager
def _locked() -> Iterator[Path]:
    """Lock out other processes that change the index.

    Raises:
        WaitTimeout: another process has the lock for long.
    """
    path = files.made_root() / _NAME
    with locked(path.with_suffix(".lock"), "another command to change the history", _LOCK_TIMEOUT):
        yield path
