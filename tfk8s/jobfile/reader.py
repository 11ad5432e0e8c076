"""Reading of hostile YAML text into plain data, with the location of every key and value.

The reader checks the parser's events before it builds anything. Nesting is limited, because 100 kB of `[` crash
libyaml's composer. Aliases are rejected, because a few hundred bytes of them expand to gigabytes. Anchors, merge keys,
tags, directives, second documents and duplicate keys are rejected as well.

The result is data that JSON could hold, so that every parser agrees on it (Helm's reads YAML 1.1). A plain scalar on
which parsers disagree, such as `yes` or `010`, becomes an `AmbiguousScalar`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tfk8s.errors import Problem, quoted
from tfk8s.jobfile.document import MAX_PROBLEMS, Document, Location, Path
from tfk8s.jobfile.scalars import AmbiguousScalar, resolve
from tfk8s.jobfile.syntax import code_point
from tfk8s.jobfile.text import decode

MAX_LEVELS = 32

# libyaml's parser is 20 times as fast, but some builds of PyYAML lack it.
PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Characters that only an escape can write, and that no environment variable or JSON text can hold.
_BAD_ESCAPE = re.compile("[\0\ud800-\udfff]")


class _Stop(Exception):
    """Stops the reading; the reason is a problem of the document."""


def read(data: bytes) -> Document:
    """Read a YAML file that has one document, a job file."""
    document, events = _parsed(data, "a job file")
    if events is not None:
        _DocumentReader(document, events, "a job file").read()
    return document


def read_all(data: bytes, noun: str) -> list[Document]:
    """Return the documents of a YAML file, of which the last one can be incomplete.

    Args:
        data: the file.
        noun: the file in messages, such as "a manifest".
    """
    document, events = _parsed(data, noun)
    if events is None:
        return [document]
    documents = [document]
    while _DocumentReader(document, events, noun).read_next():
        document = Document(document.lines)
        documents.append(document)
    return [document for document in documents if document.problems or document.values]


def _parsed(data: bytes, noun: str) -> tuple[Document, Iterator[Any] | None]:
    """Return an empty document with the lines of a file, and the parser's events, or None if the file has a problem."""
    document, text = decode(data, noun)
    return document, None if text is None else iter(yaml.parse(text, Loader=PARSER))


def _location(event: Any) -> Location:
    start, end = event.start_mark, event.end_mark
    length = end.column - start.column if end.line == start.line else 1
    return Location(start.line + 1, start.column + 1, max(1, length))


class _DocumentReader:
    """Builds the data of one document from the parser's events."""

    def __init__(self, document: Document, events: Iterator[Any], noun: str) -> None:
        self._document, self._events, self._noun = document, events, noun

    def read(self) -> None:
        """Read the only document of a file."""
        with self._collected():
            self._next_document()
            if not self._document.values:
                advice = "create a job file with: tfk8s init"
                self._document.problems.append(Problem("empty-file", "the job file is empty", help=advice))
                raise _Stop
            following = next(self._events)
            if isinstance(following, yaml.DocumentStartEvent):
                self._problem(
                    "second-document",
                    "a job file must be one YAML document",
                    following,
                    label="the second document starts here",
                )

    def read_next(self) -> bool:
        """Read the next document of a file, if there is one; return whether another one may follow."""
        with self._collected():
            return self._next_document()
        return False

    @contextlib.contextmanager
    def _collected(self) -> Iterator[None]:
        """Add the problem that ends the reading; without one, the document is complete."""
        try:
            yield
            self._document.complete = True
        except _Stop:
            pass
        except yaml.YAMLError as error:
            self._document.problems.append(_syntax_problem(self._document, error))

    def _check_directives(self, start: Any) -> None:
        if start.version or start.tags:
            message = f"YAML directives are not allowed in {self._noun}"
            self._problem("directive", message, start, advice="remove the line that starts with %")

    def _next_document(self) -> bool:
        """Read the next document; return whether there is one. An empty one has no values."""
        start = next(self._events)
        if isinstance(start, yaml.StreamStartEvent):
            start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            return False
        self._check_directives(start)
        root = next(self._events)
        if not _is_nothing(root):
            self._document.data = self._value(root, (), 1)
        next(self._events)
        return True

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
            message = f"YAML aliases are not allowed in {self._noun}"
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
            self._problem("too-deep", f"{self._noun} can have at most {MAX_LEVELS} levels", event, path)
            raise _Stop

    def _check_properties(self, event: Any, path: Path) -> None:
        if event.anchor:
            message = f"YAML anchors are not allowed in {self._noun}"
            self._problem("anchor", message, event, path, advice=f"remove &{event.anchor}")
        if event.tag:
            self._document.broken.add(path)
            message = f"YAML tags are not allowed in {self._noun}"
            self._problem("tag", message, event, path, advice="remove the word that starts with !")

    def _check_escapes(self, event: Any, path: Path) -> None:
        if bad := _BAD_ESCAPE.search(event.value):
            self._document.broken.add(path)
            self._problem("bad-character", f"{code_point(bad.group())} is not allowed in {self._noun}", event, path)

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
            message = f"YAML merge keys are not allowed in {self._noun}"
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


def _is_nothing(event: Any) -> bool:
    """Return whether a document that begins with this event is empty."""
    return isinstance(event, yaml.ScalarEvent) and not event.value and _is_plain(event)


def _is_plain(event: Any) -> bool:
    return bool(event.implicit[0])


def _syntax_problem(document: Document, error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return Problem("syntax", f"this is not YAML: {error}")
    location = Location(mark.line + 1, mark.column + 1, 1)
    if "nesting depth" in str(error.problem):  # libyaml since 0.2.6 looks ahead of its events
        return document.problem("too-deep", f"a file can have at most {MAX_LEVELS} levels", location)
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
