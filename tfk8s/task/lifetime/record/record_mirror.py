"""The copy of a record in a bucket. The record itself is in the pod's own volume, and is written as one in a claim is.

Each object is sent whole when it has changed, so a kill tears none. A pod on a node that is cut off may write beside
its successor. So each takes the facts in the bucket before it sends its own: none removes what the other has told.
Facts that are replaced even so, in the same moment, come back with the next ones of their writer. Standard library
only: this file runs in pods.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tfk8s.core.history.facts import MAX_AGE, MAX_ENTRIES
from tfk8s.core.history.shared import EVENTS, FACTS, FOLDER, INDEX, LOGS, is_log, marked_record, marker_name
from tfk8s.task.buckets.bucket_client import BucketClient
from tfk8s.task.lifetime.record.record_files import add_lines, replace_file

_INTERVAL = 30.0  # seconds between two times that a part is sent
_RATE = 8 << 10  # bytes a second of a part: a large one is sent less often
_MOST_BYTES = 8 << 20  # of a part that is brought back
_MOST_RESTORED = 64 << 20  # bytes of all parts that are brought back
_MOST_PARTS = 4000
_MOST_YOUNG = 2 * MAX_ENTRIES  # records, of which the older half was written lately
_MOST_RECORDS = 3 * MAX_ENTRIES  # that are listed to find the surplus
_STEP = 20.0  # seconds of sending between two looks
_MARK_INTERVAL = 86_400.0  # seconds, so that a record that is still written is not taken for an old one
_YOUNG = 3 * _MARK_INTERVAL  # seconds since the last change of a record whose cluster may run
_REMOVED_AT_ONCE = 100  # objects

_State = tuple[int, int]  # of a file: its size, and the time of its change


class RecordMirror:
    """Keeps the objects of one record, and removes old records.

    Args:
        connect: returns the client of the bucket.
        volume: the folder that has the record.
        say: prints a line.
        clock: returns a time in seconds since the epoch.
    """

    def __init__(
        self, connect: Callable[[], BucketClient], volume: Path, say: Callable[[str], object],
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._volume, self._say, self._clock = volume, say, clock
        self._connect = functools.cache(connect)
        self._record = self._marker = ""
        self._sent: dict[str, _State] = {}
        self._there: dict[str, int] = {}  # the parts in the bucket, and their bytes
        self._seen = ""  # the digest of the facts that the bucket had last
        self._marked_at = clock()
        self._due: dict[str, float] = {}
        self._is_marked = True
        self._surplus: Iterator[str] = iter(())

    def restore(self, record: str, begin: float) -> None:
        """Bring what an earlier pod has sent into the volume, but for what is there. Of facts, add those that lack.

        Args:
            record: the name of the record, whose folders exist.
            begin: the time of the cluster's start, in seconds since the epoch.

        Raises:
            OSError, HTTPException, ValueError: the bucket does not answer, or refuses.
        """
        folder, prefix, left = self._volume / FOLDER / record, f"{FOLDER}/{record}/", _MOST_RESTORED
        try:
            for found in self._connect().list(prefix, _MOST_PARTS):
                part = found.name.removeprefix(prefix)
                if not _is_part(part):
                    continue
                self._there[part] = found.size
                is_there = (folder / part).exists()
                if found.size > min(_MOST_BYTES, left) or (is_there and part != FACTS):
                    continue
                content = self._connect().get(found.name, _MOST_BYTES)
                if content is None:
                    continue
                left -= len(content)
                if part == FACTS:
                    self._seen = _digest(content)
                if is_there:
                    add_lines(folder / part, content)
                else:
                    replace_file(folder / part, content)
                    self._sent[part] = _state(folder / part)
        finally:
            self._connect().close()
        self._record, self._marker = record, marker_name(record, begin)

    def send(self, stopped: threading.Event | None) -> None:
        """Send the parts that have changed, and whose time has come.

        Args:
            stopped: ends the step, as its time does; None sends all that has changed.

        Raises:
            OSError, HTTPException, ValueError: the bucket does not answer, or refuses.
        """
        if not self._record:
            return
        end = self._clock() + _STEP
        try:
            for parts in ((FACTS, EVENTS), self._logs()):  # the end of the cluster is to be seen before its logs are
                self._send_parts(parts, stopped, end)
                self._mark()
            if stopped:
                self._remove_surplus(stopped, end)
        finally:
            self._connect().close()

    def prune(self) -> None:
        """Remove the records that are too old or too many, some objects in each step."""
        self._surplus = self._found_surplus()

    def _logs(self) -> list[str]:
        names = sorted(path.name for path in (self._volume / FOLDER / self._record / LOGS).iterdir())
        return [part for name in names if _is_part(part := f"{LOGS}/{name}")]

    def _send_parts(self, parts: Iterable[str], stopped: threading.Event | None, end: float) -> None:
        for part in parts:
            if stopped and (self._clock() > end or stopped.is_set()):
                return
            path = self._volume / FOLDER / self._record / part
            is_early = stopped is not None and self._clock() < self._due.get(part, 0.0)
            if is_early or not path.exists() or _state(path) == self._sent.get(part):
                continue
            if part == FACTS:
                self._take_others(path)
            state, content = _state(path), path.read_bytes()
            self._connect().put(f"{FOLDER}/{self._record}/{part}", content)
            if part == FACTS:
                self._seen = _digest(content)
            self._sent[part], self._there[part], self._is_marked = state, state[0], False
            self._due[part] = self._clock() + max(_INTERVAL, state[0] / _RATE)

    def _take_others(self, path: Path) -> None:
        """Add the facts that another pod has sent since this one looked last."""
        content = self._connect().get(f"{FOLDER}/{self._record}/{FACTS}", _MOST_BYTES, is_cut=True)
        if content and len(content) < _MOST_BYTES and _digest(content) != self._seen:  # no pod writes a larger one
            add_lines(path, content)

    def _mark(self) -> None:
        if not self._is_marked or self._clock() - self._marked_at > _MARK_INTERVAL:
            parts = sorted(self._there.items())
            state = hashlib.sha256(repr((parts, sorted(self._sent.items()))).encode()).hexdigest()
            self._connect().put(self._marker, json.dumps({"parts": parts, "state": state}).encode())
            self._is_marked, self._marked_at = True, self._clock()

    def _found_surplus(self) -> Iterator[str]:
        """Yield the names of the objects of old records; a record's marker comes last."""
        for number, marker in enumerate(self._connect().list(f"{INDEX}/", _MOST_RECORDS)):
            record, age = marked_record(marker.name), self._clock() - marker.changed
            is_young = age <= (MAX_AGE if number < MAX_ENTRIES else _YOUNG if number < _MOST_YOUNG else 0.0)
            if record and record != self._record and not is_young:
                yield from (found.name for found in self._connect().list(f"{FOLDER}/{record}/", _MOST_PARTS))
                yield marker.name

    def _remove_surplus(self, stopped: threading.Event, end: float) -> None:
        """Remove some objects. A bucket that refuses keeps its old records."""
        try:
            for name in itertools.islice(self._surplus, _REMOVED_AT_ONCE):
                self._connect().delete(name)
                if stopped.is_set() or self._clock() > end:
                    return
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._surplus = iter(())
            self._say(f"error: old records of the history stay: {error}")


def _is_part(part: str) -> bool:
    return part in (FACTS, EVENTS) or is_log(part)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _state(path: Path) -> _State:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
