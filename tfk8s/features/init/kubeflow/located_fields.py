"""The fields of an object in a file, each with its place: errors name the line, and no field is lost unnoticed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfk8s.errors import JobFileError, quoted
from tfk8s.jobfile.document import Document, Location, Path, dotted
from tfk8s.jobfile.scalars import AmbiguousScalar
from tfk8s.jobfile.types import Type
from tfk8s.jobfile.values import Invalid

_KINDS: dict[type, str] = {dict: "a mapping", list: "a list"}
_NOTHING: tuple[object, ...] = (False, "", [], {})


class Fields:
    """The fields of a mapping. Methods take a field; `left` has those that nobody took.

    Args:
        path: the path of the mapping in the document.
        data: the mapping. Fields with the value null are absent, as in Kubernetes.
    """

    def __init__(self, file: str, document: Document, path: Path, data: dict[str, Any]) -> None:
        self._file, self._document, self._path = file, document, path
        self._data = {key: value for key, value in data.items() if not _is_null(value)}
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    @property
    def keys(self) -> list[str]:
        """The names of the fields that have a value."""
        return list(self._data)

    @property
    def taken(self) -> frozenset[str]:
        """The names of the fields that were taken, also of absent ones."""
        return frozenset(self._taken)

    def text(self, key: str, default: str = "") -> str:
        """Take a text."""
        return str(self._take(key, (str,), "text", default))

    def number(self, key: str) -> int | None:
        """Take a whole number."""
        number = self._take(key, (int,), "a whole number", None)
        return None if number is None else int(number)

    def flag(self, key: str) -> bool:
        """Take a boolean."""
        return bool(self._take(key, (bool,), "true or false", False))

    def value(self, key: str, type_: Type, default: Any = None) -> Any:
        """Take a value that a job file must be able to have, and return it as the file has it."""
        value = self._take(key, type_.accepts, type_.expected, default)
        if key in self._data:
            try:
                type_.read(value, (key,))
            except Invalid as invalid:
                raise self.error(key, str(invalid), invalid.label, invalid.advice, invalid.code) from invalid
        return value

    def texts(self, key: str) -> list[str]:
        """Take a list of texts."""
        texts = self._take(key, (list,), "a list", [])
        return [str(self._checked((key, index), text, (str,), "text")) for index, text in enumerate(texts)]

    def fields(self, key: str) -> Fields:
        """Take a mapping; without the field, it is empty."""
        return self._nested((key,), self._take(key, (dict,), "a mapping", {}))

    def each(self, key: str) -> list[Fields]:
        """Take a list of mappings."""
        entries = self._take(key, (list,), "a list", [])
        return [
            self._nested((key, index), self._checked((key, index), entry, (dict,), "a mapping"))
            for index, entry in enumerate(entries)
        ]

    def drop(self, *keys: str) -> None:
        """Take fields without their values."""
        self._taken.update(keys)

    def rest(self) -> dict[str, Any]:
        """Take all fields that are left, and return their values."""
        rest = {key: self._plain((key,), value) for key, value in self._data.items() if key not in self._taken}
        self._taken.update(rest)
        return rest

    def left(self) -> list[str]:
        """Return the names of the fields that nobody took, without those that say nothing, such as false."""
        return [key for key, value in self._data.items() if key not in self._taken and value not in _NOTHING]

    def error(
        self, key: str, message: str, label: str = "", advice: str | None = None, code: str = "bad-value"
    ) -> JobFileError:
        """Return an error at the value of a field; "" is the mapping itself, and so is an absent field."""
        place = (*self._path, key) if key in self._data else self._path
        return self._error(self._document.values[place], place, code, message, label, advice)

    def key_error(self, key: str, message: str, label: str) -> JobFileError:
        """Return an error at the name of a field."""
        place = (*self._path, key)
        return self._error(self._document.keys[place], place, "bad-value", message, label)

    def _error(
        self, at: Location, place: Path, code: str, message: str, label: str, advice: str | None = None
    ) -> JobFileError:
        problem = self._document.problem(code, message, at, place, label=label, advice=advice)
        return JobFileError(self._file, [problem])

    def _nested(self, path: Path, data: dict[str, Any]) -> Fields:
        place = (*self._path, *path)
        return Fields(self._file, self._document, place if place in self._document.values else self._path, data)

    def _take(self, key: str, accepted: Sequence[type], expected: str, default: Any) -> Any:
        self._taken.add(key)
        return self._checked((key,), self._data[key], accepted, expected) if key in self._data else default

    def _checked(self, path: Path, value: Any, accepted: Sequence[type], expected: str) -> Any:
        if type(value) in accepted:
            return value
        place = (*self._path, *path)
        raw = self._document.raw(place)
        is_number = isinstance(value, bool | int | float | AmbiguousScalar)
        advice = f'write "{raw}", in quotes' if is_number and str in accepted else None
        kind = _KINDS.get(type(value), quoted(raw))
        raise self._error(
            self._document.values[place],
            place,
            "wrong-type",
            f"{dotted(path)} can't be {kind}",
            f"expected {expected}",
            advice,
        )

    def _plain(self, path: Path, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._plain((*path, key), entry) for key, entry in value.items() if not _is_null(entry)}
        if isinstance(value, list):
            return [self._plain((*path, index), entry) for index, entry in enumerate(value)]
        if isinstance(value, AmbiguousScalar):
            message = f"YAML parsers disagree on what {quoted(value.text)} means"
            advice = f'if it is meant as text, write "{value.text}", in quotes'
            place = (*self._path, *path)
            raise self._error(self._document.values[place], place, "unclear", message, "expected a value", advice)
        return value


def _is_null(value: object) -> bool:
    return isinstance(value, AmbiguousScalar) and value.is_null
