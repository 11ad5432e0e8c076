"""Takes the records of a shared history into this user's own.

An entry knows its record by a fact of the kind "shared". An entry of this user's own commands is that of a record which
has the same commands, or which began at the same place at the same time. A kill at any point loses nothing: the mark of
a record is written last, and what has no mark is asked for again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tfk8s.backends.history import files, index, places
from tfk8s.backends.history.files import MAX_FACTS, EntryFiles
from tfk8s.backends.history.lines import append
from tfk8s.backends.own_folder import locked
from tfk8s.core.history.facts import SHARED, Fact, is_time, tells, text
from tfk8s.core.history.records import MAX_LOG, MAX_LOGS, SharedRecord, lacks_logs, unpack
from tfk8s.core.history.shared import parse_record_name
from tfk8s.task.files.line_file import to_line

_LOCK = "merging.lock"
LOCK_TIMEOUT = 60.0
MAX_UNPACKED = 2 * MAX_LOGS  # bytes of logs, after which a command takes no further record
_CLOCKS = 60.0  # seconds between the clocks of this machine and of the API server


@dataclass(slots=True)
class Pulled:
    """The result of taking records of a claim or a bucket into the history.

    Attributes:
        new, changed, same: the numbers of records that are new here, that had changed, and that had not.
        left_out: the number of records for which the answer had no room.
        older: the number of records that nobody asked for.
        has_more: whether there are more of these, which nobody has counted.
        problems: what can't be read, with the names of records.
    """

    new: int = 0
    changed: int = 0
    same: int = 0
    left_out: int = 0
    older: int = 0
    has_more: bool = False
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Known:
    """An entry of this user's history.

    Attributes:
        files: its files.
        is_from_claim: whether the entry came from a claim.
        uid, mark: those of its record; "" if unknown.
        facts, commands: keys of its facts, and of those that tell a start or a command.
        end: its end, if there is one: True if somebody saw the end.
        location: the place of its cluster.
        begin: the time of its first start, in seconds since the epoch.
    """

    files: EntryFiles
    is_from_claim: bool = True
    uid: str = ""
    mark: str = ""
    facts: set[str] = field(default_factory=set)
    commands: set[str] = field(default_factory=set)
    end: bool | None = None
    location: str = ""
    begin: float = math.inf

    def note(self, fact: Fact) -> None:
        """Note a fact that the entry has."""
        self.facts.add(_key(fact))
        if fact.get("kind") == SHARED:
            self.uid, self.mark = text(fact, "uid"), text(fact, "mark")
        elif fact.get("kind") == "end":
            self.end = self.end or fact.get("lost") is not True
        elif command := _command(fact):
            self.commands.add(command)
            if fact["kind"] == "start":
                self.location = self.location or text(fact, "location")
                self.begin = min(self.begin, fact["time"])

    def began_with(self, location: str, begin: float) -> bool:
        """Return whether this user made the cluster of a record, which this entry does not know yet.

        The pod that writes a record takes the commands some seconds later.
        """
        is_own = not self.is_from_claim and not self.uid and self.location == location
        return is_own and abs(self.begin - begin) < _CLOCKS

    def missing(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        """Yield those of a record's facts that the entry lacks. An end that somebody saw replaces one that nobody saw.

        The entry gets at most two ends: it may exceed the size of entries by them.
        """
        for fact in facts:
            if fact["kind"] != "end":
                if (key := _key(fact)) not in self.facts:
                    self.facts.add(key)
                    yield fact
            elif self.end is None or (not self.end and fact.get("lost") is not True):
                is_lost = fact.get("lost") is True
                self.end = not is_lost
                yield {"kind": "end", "time": fact["time"], "reason": text(fact, "reason"), "lost": is_lost}


class Merger:
    """Takes records of one claim or bucket, in a `with` that keeps other processes from doing the same.

    Args:
        claim: the claim's name, or the bucket's URL.
        location: of its clusters, as their status has it; or the bucket's URL.
    """

    def __init__(self, claim: str, location: str) -> None:
        self._claim, self._location = claim, location
        self._known: dict[str, list[_Known]] = {}  # by the cluster's name
        self._last: dict[str, int] = {}  # the number of the last new entry, by the cluster's name
        self._lock = contextlib.ExitStack()
        self._left = MAX_UNPACKED

    def __enter__(self) -> Merger:
        path = files.made_root() / _LOCK
        self._lock.enter_context(locked(path, "another command to take records of a claim", LOCK_TIMEOUT))
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def has(self, record: str, mark: str) -> bool:
        """Return whether the history has a record as it is now."""
        cluster, uid = parse_record_name(record) or ("", "")
        return any(mark == one.mark != "" for one in self._entries(cluster) if one.uid == uid)

    def take(self, record: SharedRecord) -> tuple[bool, str]:
        """Add what the history lacks of a record.

        Returns:
            Whether the record is new, and what of it is left out; "" if nothing.

        Raises:
            ValueError: no fact of the record tells the start of its cluster.
            OSError: the history can't be written.
        """
        facts = [{**fact, "location": self._location} if fact["kind"] == "start" else fact
                 for fact in filter(tells, record.facts)]  # fmt: skip
        known = self._find(record.cluster, record.uid, facts)
        is_new = known is None
        if known is None:
            if not any(fact["kind"] == "start" for fact in facts):
                raise ValueError("nothing tells its start")
            known = _Known(files.make(record.cluster, self._last.get(record.cluster, 0)))
            self._last[record.cluster] = known.files.number
            self._entries(record.cluster).append(known)
        name = {"kind": SHARED, "uid": record.uid, "claim": self._claim, "location": self._location}
        begin = [] if known.uid else [{**name, "time": time.time()}]
        _append(known, [*begin, *known.missing(facts)])
        size, lacks = _keep_logs(known, record)
        self._left -= size
        _append(known, [{**name, "time": time.time(), "mark": record.mark}])
        if known.is_from_claim:  # the end of a lost one is the time of what was written last
            _set_time(known.files, max(fact["time"] for fact in facts))
        index.refresh(known.files)
        return is_new, lacks

    def take_into(self, record: SharedRecord, result: Pulled) -> None:
        """Do as `take`, and note in a result what has become of the record; OSError as there.

        After records with too many logs, the others are left to the next command.
        """
        if self._left <= 0:
            result.left_out += 1
            return
        problem = record.problem
        try:
            is_new, lacks = self.take(record)
        except (ValueError, RecursionError) as error:
            problem = f"is left out: {problem or error}"
        else:
            result.new, result.changed = result.new + is_new, result.changed + (not is_new)
            problem = "; ".join(filter(None, (problem, lacks)))
        if problem:
            result.problems.append(f"record {record.name} {problem}")

    def _find(self, cluster: str, uid: str, facts: Iterable[Fact]) -> _Known | None:
        """Return the entry of a record; None without one."""
        known = self._entries(cluster)
        commands = set(filter(None, map(_command, facts)))
        begin = min((fact["time"] for fact in facts if fact["kind"] == "start"), default=math.inf)
        same = (one for one in reversed(known) if not one.uid and not commands.isdisjoint(one.commands))
        made = (one for one in known if one.began_with(self._location, begin))
        found = next((one for one in known if one.uid == uid), None) or next(same, None)
        return found or min(made, key=lambda one: abs(one.begin - begin), default=None)

    def _entries(self, cluster: str) -> list[_Known]:
        if cluster not in self._known:
            self._known[cluster] = []
            for entry in files.of_name(cluster):
                with contextlib.suppress(OSError):  # a damaged entry is that of no record
                    facts = entry.facts()
                    known = _Known(entry, places.is_from_claim(facts))
                    self._known[cluster].append(known)
                    for fact in facts:
                        known.note(fact)
        return self._known[cluster]


def _append(known: _Known, facts: Iterable[Fact]) -> None:
    """Append facts to an entry, but not beyond its size, except for its end."""
    path = known.files.path / "facts.jsonl"
    size = path.stat().st_size if path.exists() else 0
    added = []
    for fact in facts:
        line = to_line(fact)
        if size + len(line) <= MAX_FACTS or fact["kind"] == "end":
            size += len(line) + 1
            added.append(line)
            if fact["kind"] == SHARED:  # `missing` has noted the others, and an entry with a record is of no other
                known.note(fact)
    if added:
        append(path, b"\n".join(added))


def _keep_logs(known: _Known, record: SharedRecord) -> tuple[int, str]:
    """Keep the logs and events of a record, in place of those that came from the record before.

    Returns:
        The bytes of its logs without compression, and what is left out; "" if nothing.
    """
    entry, size, lacks = known.files, 0, 0
    own = () if known.is_from_claim else entry.logs()
    for name, packed in record.logs.items():
        if name in own:
            continue
        if size + MAX_LOG > MAX_LOGS:
            lacks += 1
            continue
        try:
            content = unpack(packed, MAX_LOG)
        except ValueError:  # the log is damaged, or too long
            size += MAX_LOG
            continue
        size += len(content)
        entry.keep_log(name, [content])
    if record.events and (known.is_from_claim or not (entry.path / "events.gz").exists()):
        entry.write_events(record.events)
    return size, lacks_logs(lacks)


def _set_time(entry: EntryFiles, moment: float) -> None:
    """Set the time of an entry's files, but to no time that is yet to come."""
    moment = min(moment, time.time())
    for path in entry.path.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (moment, moment))


def _key(fact: Fact) -> str:
    """Return a text that is the same for the same fact: locations have the names of contexts, which differ.

    The fact of a command may be cut on its way into the record.
    """
    if fact.get("kind") in ("verb", "verb_end") and (token := text(fact, "token")):
        return f"{fact['kind']} {token}"
    return json.dumps({name: value for name, value in fact.items() if name != "location"}, sort_keys=True)


def _command(fact: Fact) -> str:
    """Return a text for the begin of a cluster or a command; "" for another fact."""
    is_begin = fact.get("kind") in ("start", "verb") and is_time(fact.get("time"))
    return f"{fact['kind']} {float(fact['time'])} {text(fact, 'token')}" if is_begin else ""
