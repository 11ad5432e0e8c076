"""Hostile text → plain data, with the place of every key and value.

The text is read on the parser's event stream, before anything is built: a limit on nesting (100 kB of `[` crash
libyaml's composer), no anchors, aliases, merge keys, tags, directives or second documents (a few hundred bytes of
aliases stand for gigabytes), no key twice. What comes out is what JSON could say, so that every parser (Helm's
reads YAML 1.1) agrees: a plain scalar on which parsers disagree, such as `yes` or `010`, becomes an `Unclear`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from tfk8s.errors import Problem, quoted
from tfk8s.jobfile.document import MAX_PROBLEMS, Document, Path, Place
from tfk8s.jobfile.scalars import AmbiguousScalar, resolve
from tfk8s.jobfile.syntax import code_point

MAX_BYTES = 1 << 20
MAX_LEVELS = 32

# libyaml's, which is 20 times as fast; a PyYAML that was built without it has only its own.
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
# What YAML forbids, and what it allows but some parsers take for a line break or a byte order mark.
_BAD_CHARACTER = "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
_BAD_ASCII = "[\0-\b\v\f\x0e-\x1f\x7f]"

# What only an escape in double quotes can say, and no environment variable or JSON text can hold.
_BAD_ESCAPE = re.compile("[\0\ud800-\udfff]")


class _Stop(Exception):
    """The rest can't be read, and it has been said why."""


def read(data: bytes) -> Document:
    """Read a YAML file."""
    if len(data) > MAX_BYTES:
        return _unreadable("too-large", "a job file has at most 1 MiB")
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
    bad = re.search(_BAD_ASCII if text.isascii() else _BAD_CHARACTER, text)  # to compile the latter takes 10 ms
    if bad:
        document.problems.append(_bad_character(document, text, bad))
    else:
        _Reader(document, text).read()
    return document


def _unreadable(code: str, message: str, help: str | None = None) -> Document:  # noqa: A002
    return Document([], problems=[Problem(code, message, help=help)])


def _not_utf8(data: bytes, error: UnicodeDecodeError) -> Document:
    before = _LINE_BREAK.split(data[: error.start].decode())
    document = Document(_LINE_BREAK.split(data.decode(errors="replace")))
    place = Place(len(before), len(before[-1]) + 1, 1)
    message = f"byte 0x{data[error.start]:02x} is not UTF-8"
    document.problems.append(document.problem("not-utf8", message, place, help="save the file as UTF-8"))
    return document


def _bad_character(document: Document, text: str, bad: re.Match[str]) -> Problem:
    before = _LINE_BREAK.split(text[: bad.start()])
    place = Place(len(before), len(before[-1]) + 1, 1)
    return document.problem("bad-character", f"{code_point(bad.group())} can't stand in a job file", place)


def _place(event: Any) -> Place:
    start, end = event.start_mark, event.end_mark
    length = end.column - start.column if end.line == start.line else 1
    return Place(start.line + 1, start.column + 1, max(1, length))


class _Reader:
    """Builds the data of one document from the parser's events; no deeper than MAX_LEVELS."""

    def __init__(self, document: Document, text: str) -> None:
        self._document = document
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=_PARSER))

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
            self._problem(
                "directive", "a job file has no YAML directives", start, help="remove the line that starts with %"
            )
        root = next(self._events)
        if isinstance(root, yaml.ScalarEvent) and not root.value and _is_plain(root):
            self._empty()
        self._document.data = self._value(root, (), 1)
        next(self._events)
        following = next(self._events)
        if isinstance(following, yaml.DocumentStartEvent):
            self._problem("second-document", "a job file is one YAML document", following, label="a second one")

    def _empty(self) -> NoReturn:
        self._document.problems.append(
            Problem("empty-file", "the job file is empty", help="write one with: tfk8s init")
        )
        raise _Stop

    def _problem(self, code: str, message: str, event: Any, path: Path = (), **more: str) -> None:
        document = self._document
        document.problems.append(document.problem(code, message, _place(event), path, **more))
        if len(document.problems) > MAX_PROBLEMS:
            raise _Stop

    def _value(self, event: Any, path: Path, level: int) -> object:
        """Build the value that begins with `event`."""
        document = self._document
        document.values[path] = _place(event)
        if isinstance(event, yaml.AliasEvent):
            document.broken.add(path)
            self._problem(
                "alias", "a job file has no aliases", event, path, help="write the value out where it is used"
            )
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
            self._problem("too-deep", f"a job file has at most {MAX_LEVELS} levels", event, path)
            raise _Stop

    def _check_properties(self, event: Any, path: Path) -> None:
        if event.anchor:
            self._problem("anchor", "a job file has no anchors", event, path, help=f"remove &{event.anchor}")
        if event.tag:
            self._document.broken.add(path)
            self._problem("tag", "a job file has no tags", event, path, help="remove the word that starts with !")

    def _check_escapes(self, event: Any, path: Path) -> None:
        if bad := _BAD_ESCAPE.search(event.value):
            self._document.broken.add(path)
            self._problem("bad-character", f"{code_point(bad.group())} can't stand in a job file", event, path)

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
                self._document.values[path] = _place(event)
            if key is None or key in entries:
                self._skip(next(self._events), path, level)
                continue
            here = (*path, key)
            value = entries[key] = self._value(next(self._events), here, level + 1)
            if isinstance(value, AmbiguousScalar) and value.is_nothing:
                self._nothing(event, here, start.flow_style)
        return entries

    def _nothing(self, key: Any, path: Path, in_braces: bool) -> None:
        document = self._document
        document.values[path] = document.keys[path]
        name, colon, rest = key.value.partition(":")
        if in_braces and colon and _is_plain(key) and path not in document.broken:
            document.broken.add(path)
            message = f"{quoted(key.value)} has no space after the colon"
            self._problem("missing-space", message, key, path, help=f"write {name}: {rest}")

    def _until(self, end: type[yaml.Event], start: Any, path: Path) -> Iterator[Any]:
        """Yield events up to the one that ends a list or dict, whose place is then known whole."""
        for event in self._events:
            if isinstance(event, end):
                break
            yield event
        if start.flow_style and event.end_mark.line == start.start_mark.line:
            place = self._document.values[path]
            self._document.values[path] = place._replace(length=event.end_mark.column + 1 - place.column)

    def _key(self, event: Any, path: Path, level: int) -> str | None:
        """Return the key that begins with `event`, or None where its value is to be left out."""
        document = self._document
        if not isinstance(event, yaml.ScalarEvent):
            document.broken.add(path)
            self._problem("bad-key", "a key is text", event, path, help="write it in quotes if it is meant as text")
            self._skip(event, path, level)
            return None
        key: str = event.value
        here = (*path, key)
        if key == "<<" and _is_plain(event):
            document.broken.add(here)
            self._problem("merge-key", "a job file has no merge keys", event, path, help="write the merged keys out")
            return None
        if here in document.keys:
            label = f"it is also on line {document.keys[here].line}"
            self._problem("duplicate-key", f"{quoted(key)} is given twice", event, here, label=label)
            return key
        document.keys[here] = _place(event)
        self._check_properties(event, here)
        self._check_escapes(event, here)
        if _is_plain(event) and isinstance(resolve(key), (AmbiguousScalar, bool, float)):
            document.broken.add(here)
            message = f"YAML parsers disagree on what {quoted(key)} means"
            self._problem("unclear", message, event, here, help=f'write "{key}", in quotes')
        return key

    def _skip(self, event: Any, path: Path, level: int) -> None:
        """Read a value that is left out; what is wrong in it does not matter."""
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
    place = Place(mark.line + 1, mark.column + 1, 1)
    line = document.lines[mark.line] if mark.line < len(document.lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        place = Place(mark.line + 1, line.index("\t") + 1, 1)
        return document.problem("tab", "a tab can't indent a line in YAML", place, help="indent with spaces")
    label = ""
    if error.context_mark and not "".join([line[mark.column :], *document.lines[mark.line + 1 :]]).strip():
        place, label = Place(error.context_mark.line + 1, error.context_mark.column + 1, 1), "this has no end"
    elif error.context and error.context_mark and error.context_mark.line != mark.line:
        label = f"{error.context} that starts on line {error.context_mark.line + 1}"
    help = 'text with ": " in it must be in quotes' if "mapping values" in str(error.problem) else None  # noqa: A001
    return document.problem("syntax", f"this is not YAML: {error.problem}", place, label=label, help=help)
