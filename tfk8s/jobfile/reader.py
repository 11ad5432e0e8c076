"""Reading of hostile YAML text into plain data, with the location of every key and value.

The reader checks the parser's events before it builds anything. Nesting is limited, because 100 kB of `[` crash
libyaml's composer. Aliases are rejected, because a few hundred bytes of them expand to gigabytes. Anchors, merge keys,
tags, directives, second documents and duplicate keys are rejected as well.

The result is data that JSON could hold, so that every parser agrees on it (Helm's reads YAML 1.1). A plain scalar on
which parsers disagree, such as `yes` or `010`, becomes an `AmbiguousScalar`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from tfk8s.errors import Problem, quoted
from tfk8s.jobfile.document import MAX_PROBLEMS, Document, Location, Path
from tfk8s.jobfile.scalars import AmbiguousScalar, resolve
from tfk8s.jobfile.syntax import code_point

MAX_BYTES = 1 << 20
MAX_LEVELS = 32

# libyaml's parser is 20 times as fast, but some builds of PyYAML lack it.
PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
# Characters that YAML forbids, and characters that some parsers read as a line break or a byte order mark.
BAD_CHARACTER = "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
BAD_ASCII = "[\0-\b\v\f\x0e-\x1f\x7f]"

# Characters that only an escape can write, and that no environment variable or JSON text can hold.
_BAD_ESCAPE = re.compile("[\0\ud800-\udfff]")


class _Stop(Exception):
    """Stops the reading; the reason is a problem of the document."""


def read(data: bytes) -> Document:
    """Read a YAML file."""
    if len(data) > MAX_BYTES:
        return _unreadable("too-large", "a job file can have at most 1 MiB")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _unreadable("not-utf8", "the file is UTF-16, not UTF-8", "save it as UTF-8")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if b"\0" in data:
            return _unreadable("binary-file", "this is a binary file, not a job file")
        return _not_utf8(data, error)
    document = Document(_LINE_BREAK.split(text))
    bad = re.search(BAD_ASCII if text.isascii() else BAD_CHARACTER, text)  # to compile the latter takes 10 ms
    if bad:
        document.problems.append(_bad_character(document, text, bad))
    else:
        _DocumentReader(document, text).read()
    return document


def _unreadable(code: str, message: str, advice: str | None = None) -> Document:
    return Document([], problems=[Problem(code, message, help=advice)])


def _not_utf8(data: bytes, error: UnicodeDecodeError) -> Document:
    before = _LINE_BREAK.split(data[: error.start].decode())
    document = Document(_LINE_BREAK.split(data.decode(errors="replace")))
    location = Location(len(before), len(before[-1]) + 1, 1)
    message = f"byte 0x{data[error.start]:02x} is not UTF-8"
    document.problems.append(document.problem("not-utf8", message, location, advice="save the file as UTF-8"))
    return document


def _bad_character(document: Document, text: str, bad: re.Match[str]) -> Problem:
    before = _LINE_BREAK.split(text[: bad.start()])
    location = Location(len(before), len(before[-1]) + 1, 1)
    return document.problem("bad-character", f"{code_point(bad.group())} is not allowed in a job file", location)


def _location(event: Any) -> Location:
    start, end = event.start_mark, event.end_mark
    length = end.column - start.column if end.line == start.line else 1
    return Location(start.line + 1, start.column + 1, max(1, length))


class _DocumentReader:
    """Builds the data of one document from the parser's events."""

    def __init__(self, document: Document, text: str) -> None:
        self._document = document
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=PARSER))

    def read(self) -> None:
        try:
            self._read_stream()
            self._document.complete = True
        except _Stop:
            pass
        except yaml.YAMLError as error:
            self._document.problems.append(_syntax_problem(self._document, error))

    def _read_stream(self) -> None:
        next(self._events)
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            self._empty()
        if start.version or start.tags:
            message = "YAML directives are not allowed in a job file"
            self._problem("directive", message, start, advice="remove the line that starts with %")
        root = next(self._events)
        if isinstance(root, yaml.ScalarEvent) and not root.value and _is_plain(root):
            self._empty()
        self._document.data = self._value(root, (), 1)
        next(self._events)
        following = next(self._events)
        if isinstance(following, yaml.DocumentStartEvent):
            self._problem(
                "second-document",
                "a job file must be one YAML document",
                following,
                label="the second document starts here",
            )

    def _empty(self) -> NoReturn:
        self._document.problems.append(
            Problem("empty-file", "the job file is empty", help="create a job file with: tfk8s init")
        )
        raise _Stop

    def _problem(self, code: str, message: str, event: Any, path: Path = (), **more: str) -> None:
        document = self._document
        document.problems.append(document.problem(code, message, _location(event), path, **more))
        if len(document.problems) > MAX_PROBLEMS:
            raise _Stop

    def _value(self, event: Any, path: Path, level: int) -> object:
        """Build the value that begins with `event`."""
        document = self._document
        document.values[path] = _location(event)
        if isinstance(event, yaml.AliasEvent):
            document.broken.add(path)
            message = "YAML aliases are not allowed in a job file"
            self._problem("alias", message, event, path, advice="repeat the value instead of the alias")
            return None
        self._check_properties(event, path)
        if isinstance(event, yaml.ScalarEvent):
            self._check_escapes(event, path)
            return resolve(event.value) if _is_plain(event) else event.value
        self._check_depth(event, path, level)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(event, path, level)
        return self._dict(event, path, level)

    def _check_depth(self, event: Any, path: Path, level: int) -> None:
        if level > MAX_LEVELS:
            self._problem("too-deep", f"a job file can have at most {MAX_LEVELS} levels", event, path)
            raise _Stop

    def _check_properties(self, event: Any, path: Path) -> None:
        if event.anchor:
            message = "YAML anchors are not allowed in a job file"
            self._problem("anchor", message, event, path, advice=f"remove &{event.anchor}")
        if event.tag:
            self._document.broken.add(path)
            message = "YAML tags are not allowed in a job file"
            self._problem("tag", message, event, path, advice="remove the word that starts with !")

    def _check_escapes(self, event: Any, path: Path) -> None:
        if bad := _BAD_ESCAPE.search(event.value):
            self._document.broken.add(path)
            self._problem("bad-character", f"{code_point(bad.group())} is not allowed in a job file", event, path)

    def _list(self, start: Any, path: Path, level: int) -> list[object]:
        items: list[object] = []
        for event in self._until(yaml.SequenceEndEvent, start, path):
            items.append(self._value(event, (*path, len(items)), level + 1))
        return items

    def _dict(self, start: Any, path: Path, level: int) -> dict[str, object]:
        entries: dict[str, object] = {}
        for event in self._until(yaml.MappingEndEvent, start, path):
            key = self._key(event, path, level)
            if not entries and not start.flow_style:
                self._document.values[path] = _location(event)
            if key is None or key in entries:
                self._skip(next(self._events), path, level)
                continue
            key_path = (*path, key)
            value = entries[key] = self._value(next(self._events), key_path, level + 1)
            if isinstance(value, AmbiguousScalar) and value.is_null:
                self._check_null(event, key_path, start.flow_style)
        return entries

    def _check_null(self, key: Any, path: Path, in_braces: bool) -> None:
        document = self._document
        document.values[path] = document.keys[path]
        name, colon, rest = key.value.partition(":")
        if in_braces and colon and _is_plain(key) and path not in document.broken:
            document.broken.add(path)
            message = f"{quoted(key.value)} has no space after the colon"
            self._problem("missing-space", message, key, path, advice=f"write {name}: {rest}")

    def _until(self, end: type[yaml.Event], start: Any, path: Path) -> Iterator[Any]:
        """Yield the events up to the end of a list or dict, and then complete the length of its location."""
        for event in self._events:
            if isinstance(event, end):
                break
            yield event
        if start.flow_style and event.end_mark.line == start.start_mark.line:
            location = self._document.values[path]
            self._document.values[path] = location._replace(length=event.end_mark.column + 1 - location.column)

    def _key(self, event: Any, path: Path, level: int) -> str | None:
        """Return the key that begins with `event`, or None where the caller must skip its value."""
        document = self._document
        if not isinstance(event, yaml.ScalarEvent):
            document.broken.add(path)
            self._problem(
                "bad-key", "a key must be text", event, path, advice="if the key is meant as text, put it in quotes"
            )
            self._skip(event, path, level)
            return None
        key: str = event.value
        key_path = (*path, key)
        if key == "<<" and _is_plain(event):
            document.broken.add(key_path)
            message = "YAML merge keys are not allowed in a job file"
            self._problem("merge-key", message, event, path, advice="write out the merged keys")
            return None
        if key_path in document.keys:
            label = f"it is also on line {document.keys[key_path].line}"
            self._problem("duplicate-key", f"{quoted(key)} is given twice", event, key_path, label=label)
            return key
        document.keys[key_path] = _location(event)
        self._check_properties(event, key_path)
        self._check_escapes(event, key_path)
        if _is_plain(event) and isinstance(resolve(key), (AmbiguousScalar, bool, float)):
            document.broken.add(key_path)
            message = f"YAML parsers disagree on what {quoted(key)} means"
            self._problem("unclear", message, event, key_path, advice=f'write "{key}", in quotes')
        return key

    def _skip(self, event: Any, path: Path, level: int) -> None:
        """Skip a value, and ignore the problems in it."""
        depth = 0
        while True:
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                self._check_depth(event, path, level + depth)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if not depth:
                return
            event = next(self._events)


def _is_plain(event: Any) -> bool:
    return bool(event.implicit[0])


def _syntax_problem(document: Document, error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return Problem("syntax", f"this is not YAML: {error}")
    location = Location(mark.line + 1, mark.column + 1, 1)
    line = document.lines[mark.line] if mark.line < len(document.lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        location = Location(mark.line + 1, line.index("\t") + 1, 1)
        return document.problem("tab", "a tab can't indent a line in YAML", location, advice="indent with spaces")
    label = ""
    if error.context_mark and not "".join([line[mark.column :], *document.lines[mark.line + 1 :]]).strip():
        location, label = (
            Location(error.context_mark.line + 1, error.context_mark.column + 1, 1),
            "this is never closed",
        )
    elif error.context and error.context_mark and error.context_mark.line != mark.line:
        label = f"{error.context} that starts on line {error.context_mark.line + 1}"
    advice = 'put text that contains ": " in quotes' if "mapping values" in str(error.problem) else None
    return document.problem("syntax", f"this is not YAML: {error.problem}", location, label=label, advice=advice)
