"""The records of a shared history on their way from a pod. Anybody who may write to the volume may have written them.

Each record is a line, a JSON object of `record`, `mark`, `parts` and `problem`, and then the bytes of its parts. The
last line has `left_out` alone. A list of records has the same lines, without parts.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from tfk8s.core.history import facts
from tfk8s.core.history.facts import Fact
from tfk8s.core.history.shared import EVENTS, FACTS, LOG_NAME, LOGS, RECORD, is_log, parse_record_name, record_name

MAX_FACTS, MAX_EVENTS, MAX_LOG = 6 << 20, 2 << 20, 2 << 20  # bytes; the writers' limits, and the last line beyond them
MAX_RECORD = 16 << 20  # bytes on the way, which are compressed
MAX_RECORDS = 64 << 20  # bytes of all records of one answer, and of their facts and events without compression
MAX_LOGS = 512 << 20  # bytes of a record's logs without compression: text is rarely 32 times as long
MAX_PARTS = 4000
MAX_LINES = 200_000  # of facts or events: each has some 60 bytes
_BLOCK = 4 << 10  # bytes: zlib copies what follows the end of a member
_MAX_HEADER = 1 << 20  # bytes of a line
_MAX_COUNT = 1 << 31
_MARK = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRecord:
    """The record of one cluster.

    Attributes:
        cluster: the cluster's name.
        uid: that of its ConfigMap.
        mark: a text that differs after each change of the record.
        facts: in the order of their file.
        events: the events as they were written.
        logs: the logs, compressed, by the name of a task ("worker-1") or a script.
        problem: what of the record can't be read; "" if nothing.
        size: the bytes of its facts and events, without compression.
    """

    cluster: str
    uid: str
    mark: str = ""
    facts: tuple[Fact, ...] = ()
    events: tuple[Fact, ...] = ()
    logs: dict[str, bytes] = field(default_factory=dict)
    problem: str = ""
    size: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return record_name(self.cluster, self.uid)


class RecordStream:
    """The answer of the program in the pod.

    Args:
        source: a file to read from.

    Attributes:
        left_out: the number of further records, which the answer lacks, or whose facts are too many; known after the
            last record.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._left, self.left_out = source, MAX_RECORDS, 0

    def records(self, most: int) -> Iterator[SharedRecord]:
        """Yield the records until the end, at most so many.

        Raises:
            ValueError: the answer is none, ends too early, or is too large.
        """
        size = 0
        for number in range(most + 1):
            if size > MAX_RECORDS:
                self.left_out = most - number
                return
            header = self._header()
            if "left_out" in header:
                self.left_out = _count(header["left_out"])
                return
            record = self._record(header)
            size += record.size
            yield record
        raise ValueError(f"it has more than {most} records")

    def _header(self) -> dict[str, Any]:
        line = self._source.readline(_MAX_HEADER)
        header = facts.parse(line) if line.endswith(b"\n") else None
        if header is None:
            raise ValueError("it is cut off, or has a line of a wrong form" if line else "it ends too early")
        return header

    def _record(self, header: dict[str, Any]) -> SharedRecord:
        name, mark, problem, parts = (header.get(key) for key in ("record", "mark", "problem", "parts"))
        known = parse_record_name(name) if isinstance(name, str) else None
        if known is None:
            raise ValueError("a name is not that of a record")
        problem = _shown(problem) if isinstance(problem, str) else ""
        if not isinstance(mark, str) or not _MARK.fullmatch(mark):
            mark = ""
        contents = {part: self._part(size) for part, size in _parts(parts)}
        record = SharedRecord(cluster=known[0], uid=known[1], mark=mark, problem=problem)
        return with_contents(record, contents)

    def _part(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise ValueError(f"it has more than {MAX_RECORDS:,} bytes")
        content = self._source.read(size)
        if len(content) != size:
            raise ValueError("it ends too early")
        return content


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise ValueError("a number is none")
    return value


def _parts(value: object) -> Iterator[tuple[str, int]]:
    """Yield the names and sizes of the parts of a record."""
    if value is None:
        return
    if not isinstance(value, list) or len(value) > MAX_PARTS:
        raise ValueError("the parts of a record are no list")
    for part in value:
        if not isinstance(part, list) or len(part) != 2 or not isinstance(part[0], str):
            raise ValueError("a part of a record has a wrong form")
        yield part[0], _count(part[1])


def with_contents(record: SharedRecord, contents: Mapping[str, bytes]) -> SharedRecord:
    """Return a record with what its parts contain, all compressed. A damaged part is left out, and named."""
    problems, lines, logs = [record.problem] * bool(record.problem), dict[str, list[Fact]](), dict[str, bytes]()
    size = 0
    for part, packed in contents.items():
        if part in (FACTS, EVENTS):
            most = MAX_FACTS if part == FACTS else MAX_EVENTS
            try:
                content = unpack(packed, most)
                lines[part], size = _lines(content), size + len(content)
            except ValueError as error:
                problems.append(f"{part} {error}")
        elif is_log(part):
            logs[part.removeprefix(f"{LOGS}/").removesuffix(".gz")] = packed
    return dataclasses.replace(
        record, facts=tuple(lines.get(FACTS, ())), events=tuple(lines.get(EVENTS, ())), logs=logs,
        problem="; ".join(problems), size=size,
    )  # fmt: skip


def unpack(packed: bytes, most: int) -> bytes:
    """Return what gzip has compressed, in one member or several; without what a kill has torn at the end.

    Raises:
        ValueError: it is damaged from its begin, or has more than `most` bytes.
    """
    content, unpacker, offset = bytearray(), zlib.decompressobj(wbits=31), 0
    while offset < len(packed):
        block = packed[offset : offset + _BLOCK]
        try:
            content += unpacker.decompress(block, most + 1 - len(content))
        except zlib.error:
            if not content:
                raise ValueError("is damaged") from None
            break
        if len(content) > most:
            raise ValueError(f"has more than {most:,} bytes")
        offset += len(block) - len(unpacker.unused_data)
        if unpacker.eof:
            unpacker = zlib.decompressobj(wbits=31)
    return bytes(content)


def lacks_logs(count: int) -> str:
    """Return the words for logs that a record is too large for; "" without any."""
    return f"lacks {count} {'log' if count == 1 else 'logs'}: it is too large" if count else ""


def _lines(content: bytes) -> list[Fact]:
    if content.count(b"\n") > MAX_LINES:
        raise ValueError(f"has more than {MAX_LINES:,} lines")
    return [fact for line in content.split(b"\n") if line and (fact := facts.parse(line))]


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:200])


def request(last: int, cluster: str | None, chosen: list[str] | None) -> bytes:
    """Return what the program in the pod is asked for.

    Args:
        last: the number of records, the newest ones.
        cluster: only records of clusters of this name; None for all.
        chosen: the names of the records whose parts are wanted; None asks for the list alone.
    """
    return json.dumps({
        "record": RECORD.pattern, "facts": FACTS, "events": EVENTS, "logs": LOGS, "last": last, "cluster": cluster,
        "chosen": chosen, "log_name": f"{LOG_NAME.pattern}\\.gz", "max_facts": MAX_FACTS, "max_events": MAX_EVENTS,
        "max_log": MAX_LOG, "max_record": MAX_RECORD, "max_records": MAX_RECORDS, "max_parts": MAX_PARTS,
    }).encode()  # fmt: skip
