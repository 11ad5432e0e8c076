"""The files of one entry of the history.

facts.jsonl         a JSON object a line: the start, each command, the tasks, the end
live/               logs, progress and events.log of a cluster on this machine, as the supervisor writes them
logs/NAME.gz        the end of the log of a task ("worker-1") or a script
events.gz           the events, a JSON object a line
timeline.html.gz    the last page of `submit --trace`

A kill may tear the last line of a file: readers leave it out, and the next writer begins a new line.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfk8s.backends.history.lines import append, having, read, tail, unpack
from tfk8s.backends.own_folder import open_file, read_file, require_own, unchecked_root
from tfk8s.core import naming
from tfk8s.core.history import entry
from tfk8s.core.history.entry import Entry, Row
from tfk8s.core.history.facts import MAX_LINE, Fact, parse
from tfk8s.core.history.shared import LOG_NAME
from tfk8s.errors import InvalidInput
from tfk8s.log import log
from tfk8s.task.files import line_file
from tfk8s.task.files.line_file import to_line

MAX_FACTS = 4 << 20  # bytes of an entry's facts; the end is written even so
MAX_LOG = 1 << 20  # bytes of a log that are kept, the last ones
LOG_LINES = 10_000
_MAX_TIMELINE = 256 << 20  # bytes
_MAX_EVENTS = 1 << 20
_LEVEL = 1  # of compression: 6 saves a seventh of a log, but takes ten times as long with some logs of others


def root() -> Path:
    """Return the folder of the history, which may not exist.

    Raises:
        ClusterError, OSError: this user has no home folder, or others may write to the history.
    """
    path = unchecked_root() / ".history"
    if path.exists():
        require_own(path)
    return path


def made_root() -> Path:
    """Return that folder, after creating it for this user alone; errors as `root`."""
    (unchecked_root() / ".history").mkdir(mode=0o700, parents=True, exist_ok=True)
    return root()


@contextlib.contextmanager
def unless_unwritable() -> Iterator[None]:
    """In a `with`, warn of what keeps the history from being written. The command goes on without, also after a bug."""
    try:
        yield
    except Exception as error:
        _warn(str(getattr(error, "strerror", None) or error) or type(error).__name__)


@functools.cache
def _warn(reason: str) -> None:
    """Warn of a reason, once: a command writes to the history several times."""
    log.warning("the history is not complete: %s", reason)


@dataclass(frozen=True, slots=True)
class EntryFiles:
    """The files of one entry, in a folder that may not exist."""

    path: Path

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.path.parent.name

    @property
    def number(self) -> int:
        """The number among the entries of this name."""
        return int(self.path.name)

    @property
    def id(self) -> str:
        """The name for commands, "mnist@3"."""
        return f"{self.name}@{self.number}"

    @property
    def live(self) -> Path:
        """The folder of what the supervisor writes."""
        return self.path / "live"

    @property
    def timeline(self) -> Path:
        """The compressed page."""
        return self.path / "timeline.html.gz"

    def add(self, kind: str, *, moment: float | None = None, **values: Any) -> None:
        """Append a fact.

        Args:
            kind: as `core.history.facts` has it.
            moment: seconds since the epoch; None is now.
            **values: the other parts.
        """
        facts = self.path / "facts.jsonl"
        if kind != "end" and facts.exists() and facts.stat().st_size > MAX_FACTS:
            return
        append(facts, to_line({"kind": kind, "time": time.time() if moment is None else moment, **values}))

    def facts(self) -> list[Fact]:
        """Return the facts, without torn lines.

        Raises:
            OSError: there is no such entry, or the file can't be read.
        """
        return [fact for line in self._content().split(b"\n") if line and (fact := parse(line))]

    def facts_of(self, *kinds: str) -> list[Fact]:
        """Return the facts of these kinds; errors as `facts`. The others, of thousands of commands, are not parsed."""
        lines = having(self._content(), [f'"{kind}"'.encode() for kind in kinds])
        return [fact for line in lines if (fact := parse(line)) and fact.get("kind") in kinds]

    def read(self) -> Entry:
        """Return what the facts tell.

        Raises:
            InvalidInput: the entry is damaged, or another process has just removed it.
        """
        try:
            return entry.fold(self.facts(), self.name, self.number, self.size())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidInput(f"entry {self.id} of the history can't be read: {reason}") from error

    def is_open(self) -> bool:
        """Return whether the entry has a start, and no end yet."""
        with contextlib.suppress(OSError):
            return {fact["kind"] for fact in self.facts_of("start", "end")} == {"start"}
        return False

    def remove(self) -> None:
        """Remove the files, but through no link."""
        with contextlib.suppress(OSError):
            require_own(self.path.parent)
            shutil.rmtree(self.path, ignore_errors=True)

    def last_time(self) -> float:
        """Return the time of the last thing that was written, in seconds since the epoch."""
        return max((path.stat().st_mtime for path in self._files()), default=time.time())

    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(path.stat().st_size for path in self._files())

    def _content(self) -> bytes:
        for folder in (self.path.parent, self.path):
            require_own(folder)
        return read_file(self.path / "facts.jsonl", MAX_FACTS + 2 * MAX_LINE)

    def _files(self) -> Iterator[Path]:
        return (path for path in self.path.rglob("*") if path.is_file() and not path.is_symlink())

    # ---- logs and events ----

    def write_log(self, name: str, lines: Iterable[str]) -> None:
        """Keep the end of a log, in lines of `TIME RUN TEXT`.

        Args:
            name: "worker-1", or a script's name. Objects of the cluster have it: what could be a path is left out.
            lines: all lines.
        """
        self.keep_log(name, (line.encode(errors="replace")[: MAX_LOG - 1] + b"\n" for line in lines))

    def keep_log(self, name: str, chunks: Iterable[bytes]) -> None:
        """Keep the end of a log of such lines, which chunks have together; else as `write_log`."""
        if LOG_NAME.fullmatch(name):
            self._compress(Path("logs", f"{name}.gz"), line_file.tail(chunks, MAX_LOG))

    def write_events(self, lines: Iterable[object]) -> None:
        """Keep events, each an object of plain data."""
        self._compress(Path("events.gz"), b"".join(to_line(line) + b"\n" for line in lines)[-_MAX_EVENTS:])

    def read_timeline(self) -> bytes:
        """Return the page of the timeline; errors as `lines.unpack`."""
        return unpack(self.timeline, _MAX_TIMELINE)

    def keep_timeline(self, page: Path) -> None:
        """Keep a page, in place of an earlier one."""
        self._compress(Path(self.timeline.name), page.read_bytes())

    def logs(self) -> dict[str, Path]:
        """Return the logs by name."""
        packed, live = (self.path / "logs").glob("*.gz"), (self.live / "logs").glob("*.log")
        found = {path.stem: path for path in (*packed, *live)}
        return {name: found[name] for name in sorted(found, key=_in_order)}

    def log(self, name: str) -> Iterator[tuple[str, int, str]]:
        """Yield the time, the number of the run, and the text of each line of a log."""
        for line in read(self.logs()[name], MAX_LOG):
            moment, _, rest = line.partition(" ")
            run, _, text = rest.partition(" ")
            yield moment, int(run) if run.isdecimal() and len(run) < 10 else 0, text

    def events(self) -> list[dict[str, Any]]:
        """Return the events as they were written."""
        packed = self.path / "events.gz"
        lines = read(packed if packed.exists() else self.live / "events.log", _MAX_EVENTS)
        return [event for line in lines if (event := parse(line.encode(errors="replace")))]

    def pack(self) -> None:
        """Compress what the supervisor has written. A kill in between loses nothing: what was read is removed last."""
        for path in (self.live / "logs").glob("*.log"):
            self._compress(Path("logs", f"{path.stem}.gz"), tail(path, MAX_LOG))
        if (events := self.live / "events.log").exists():
            self._compress(Path("events.gz"), tail(events, _MAX_EVENTS))
        shutil.rmtree(self.live, ignore_errors=True)

    def _compress(self, name: Path, content: bytes) -> None:
        import gzip  # 3 ms, which no `up` needs

        path = self.path / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
        with open(open_file(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(gzip.compress(content, _LEVEL))
        unfinished.replace(path)


def find(name: str, number: int) -> EntryFiles:
    """Return an entry.

    Raises:
        InvalidInput: there is no such entry.
    """
    found = EntryFiles(root() / name / str(number))
    if naming.is_dns_label(name) and (found.path / "facts.jsonl").exists():
        return found
    known = [files.id for files in of_name(name)]
    some = f"; the last one is {known[-1]}" if known else ""
    raise InvalidInput(f"the history has no entry {name}@{number}{some}", help="tfk8s history lists the entries")


def of_row(row: Row) -> EntryFiles:
    """Return the entry of a row."""
    return EntryFiles(root() / row.name / str(row.number))


def of_name(name: str) -> list[EntryFiles]:
    """Return the entries of a name, the oldest first; none for what is no name."""
    return list(newest_first(name))[::-1]


def newest_first(name: str) -> Iterator[EntryFiles]:
    """Yield the entries that `of_name` returns, the newest first: of thousands, nobody looks at the others."""
    if naming.is_dns_label(name):
        folder = root() / name
        for number in sorted(_numbers(folder), reverse=True):
            if (folder / str(number) / "facts.jsonl").exists():
                yield EntryFiles(folder / str(number))


def _numbers(folder: Path) -> list[int]:
    """Return the numbers of the entries in the folder of a name; none if that is no folder."""
    with contextlib.suppress(OSError):
        return [int(found.name) for found in os.scandir(folder) if found.name.isascii() and found.name.isdecimal()]
    return []


def make(name: str, last: int = 0) -> EntryFiles:
    """Return a new entry of a name, whose folder is empty.

    Args:
        name: the cluster's name.
        last: the number that this process has just made: of thousands, the others need not be read again.
    """
    folder = made_root() / name
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        last = last or max(_numbers(folder), default=0)
        path = folder / str(last + 1)
        last = 0
        with contextlib.suppress(FileExistsError):  # another command was quicker
            path.mkdir(mode=0o700)
            return EntryFiles(path)


def _in_order(name: str) -> tuple[str, int]:
    job, _, index = name.rpartition("-")
    return (job, int(index)) if index.isdecimal() and len(index) < 10 else (name, 0)
