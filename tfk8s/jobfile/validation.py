"""Validation of a document: the problems of its values, and the types of lists, mappings and structs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tfk8s.errors import Problem, quoted
from tfk8s.jobfile import syntax
from tfk8s.jobfile.document import MAX_PROBLEMS, Document, Location, Path, subject
from tfk8s.jobfile.scalars import AmbiguousScalar
from tfk8s.jobfile.types import DEFINITIONS, Type
from tfk8s.jobfile.values import Invalid

_TYPE_NAMES: dict[type, str] = {str: "text", dict: "a mapping", list: "a list"}


class Validator:
    """Reads a document's values and collects their problems, in the order of the file.

    Attributes:
        document: the document.
        bad: the paths of all invalid values.
        problems: the problems, up to one more than are printed.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.bad: set[Path] = set()
        self.problems: list[Problem] = []

    @property
    def is_full(self) -> bool:
        """True if there are more problems than are printed."""
        return len(self.problems) > MAX_PROBLEMS

    def read(self, type_: Type, value: object, path: Path, *, is_key: bool = False) -> Any:
        """Return the meaning of the value, or of the key, at a path; None if it has a problem, which is then added."""
        if path in self.document.broken:
            self.bad.add(path)
            return None
        try:
            if type(value) not in type_.accepts:
                raise self._wrong_type(type_, value, path)
            if isinstance(type_, Container):
                return type_.read_entries(value, path, self)
            return type_.read(value, path)
        except Invalid as invalid:
            self.add(invalid, path, (self.document.keys if is_key else self.document.values)[path])
            return None

    def add(self, invalid: Invalid, path: Path, location: Location) -> None:
        """Add the problem of the value, or of the missing value, at a path."""
        self.bad.add(path)
        if not self.is_full:
            code, label, advice = invalid.code, invalid.label, invalid.advice
            self.problems.append(self.document.problem(code, str(invalid), location, path, label=label, advice=advice))

    def add_key(self, invalid: Invalid, path: Path) -> None:
        """Add the problem of the key at a path, unless the key has one already."""
        if self.is_full or path in self.document.broken:
            self.bad.add(path)
        else:
            self.add(invalid, path, self.document.keys[path])

    def _wrong_type(self, type_: Type, value: object, path: Path) -> Invalid:
        raw, label = self.document.raw(path), f"expected {type_.expected}"
        if not isinstance(value, AmbiguousScalar):
            message = f"{subject(path)} can't be {_TYPE_NAMES.get(type(value), raw)}"
            return Invalid("wrong-type", message, label, type_.suggest(value, raw))
        if value.is_null:
            return Invalid("no-value", f"{subject(path)} has no value", label)
        message = f"YAML parsers disagree on what {quoted(value.text)} means"
        return Invalid("unclear", message, label, type_.suggest(value, value.text))


class Container(Type):
    """A type of values with entries, which the validator reads in turn."""

    def read_entries(self, value: Any, path: Path, validator: Validator, /) -> Any:
        """Return the meaning of a value, and give its entries to the validator.

        Raises:
            Invalid: the value itself is not valid.
        """
        raise NotImplementedError


class List(Container):
    """A list, which is read as a tuple."""

    accepts = (list,)
    expected = "a list"
    absent: object = []

    def __init__(
        self, entries: Type, *, minimum: int = 0, maximum: int | None = None, unique: str | None = None
    ) -> None:
        """Define a list; `unique` is the key whose values differ, or "" if the entries themselves differ."""
        limits = {"minItems": minimum or None, "maxItems": maximum, "uniqueItems": unique == "" or None}
        self.json_schema = {"type": "array", "items": entries.json_schema, **_without_none(limits)}
        self._entries, self._minimum, self._maximum, self._unique = entries, minimum, maximum, unique

    def read_entries(self, entries: Any, path: Path, validator: Validator, /) -> Any:
        """Return the entries."""
        _check_size(entries, path, self._minimum, self._maximum)
        read = tuple(validator.read(self._entries, entry, (*path, index)) for index, entry in enumerate(entries))
        if self._unique is not None:
            _add_duplicates(entries, self._unique, path, validator)
        return read

    def suggest(self, value: object, text: str, /) -> str | None:
        """Return advice to write a single text as a list."""
        return f"write [{text}]" if isinstance(value, str) else None


class OptionalList(List):
    """A list that means something else if it is absent than if it is empty."""

    absent = None


class Map(Container):
    """A mapping with any keys of one type."""

    accepts = (dict,)
    expected = "a mapping"
    absent: object = {}

    def __init__(self, keys: Type, values: Type, *, minimum: int = 0, maximum: int | None = None) -> None:
        limits = {"minProperties": minimum or None, "maxProperties": maximum}
        self.json_schema = {
            "type": "object",
            "propertyNames": keys.json_schema,
            "additionalProperties": values.json_schema,
            **_without_none(limits),
        }
        self._keys, self._values, self._minimum, self._maximum = keys, values, minimum, maximum

    def read_entries(self, entries: Any, path: Path, validator: Validator, /) -> Any:
        """Return the entries."""
        _check_size(entries, path, self._minimum, self._maximum)
        values = {}
        for key, value in entries.items():
            validator.read(self._keys, key, (*path, key), is_key=True)
            values[key] = validator.read(self._values, value, (*path, key))
        return values


class Key:
    """A key of a struct."""

    def __init__(
        self, type_: Type, description: str, *examples: object, default: object = None, required: bool = False
    ) -> None:
        self.type, self.required = type_, required
        default = type_.absent if default is None and not required else default
        self._annotations = _without_none(
            {"description": description, "examples": list(examples) or None, "default": default}
        )

    def json_schema(self, name: str) -> dict[str, Any]:
        """Return the JSON Schema of the key's value."""
        title = {} if isinstance(self.type, Struct) else {"title": name.replace("_", " ").title()}
        return self.type.json_schema | self._annotations | title


# Words of other formats, and the keys that users mean by them.
_SYNONYMS = {"replicas": "tasks", "count": "tasks", "kind": "apiVersion"}
_EXAMPLES = {"apiVersion": "apiVersion: tfk8s.dev/v1", "name": "name: mnist", "jobs": "jobs: {worker: 2}"}


class Struct(Container):
    """A mapping with known keys. It adds itself to `DEFINITIONS`.

    Attributes:
        keys: the keys by name.
        misplaced: advice by the name of a key that belongs to another struct.
    """

    accepts = (dict,)
    expected = "a mapping"
    reports_unknown = True  # so that a misspelled key needs no second problem

    def __init__(
        self,
        name: str,
        description: str,
        keys: dict[str, Key],
        *,
        make: Callable[..., object] = dict,
        rule: Callable[[dict[str, Any]], None] | None = None,
        rule_schema: Mapping[str, object] | None = None,
    ) -> None:
        """Define a struct.

        Args:
            name: the JSON Schema's title.
            description: the JSON Schema's description.
            keys: the keys by name.
            make: is called with the values of the keys, and returns the struct's meaning.
            rule: is called with these values in a dict, and raises `Invalid` where they contradict each other.
            rule_schema: the rule as a JSON Schema.
        """
        self.name, self.keys = name, keys
        self.misplaced: dict[str, str] = {}
        DEFINITIONS[name] = self
        self.json_schema = {"$ref": f"#/$defs/{name}"}
        self._description, self._make, self._rule, self._rule_schema = description, make, rule, rule_schema or {}

    def definition(self) -> dict[str, Any]:
        """Return the definition that `json_schema` refers to."""
        return {
            "title": self.name,
            "description": self._description,
            "type": "object",
            "properties": {name: key.json_schema(name) for name, key in self.keys.items()},
            "additionalProperties": False,
            **_without_none({"required": [name for name, key in self.keys.items() if key.required] or None}),
            **self._rule_schema,
        }

    def read_entries(self, entries: Any, path: Path, validator: Validator, /) -> Any:
        """Return the result of `make`, or None where a key has a problem."""
        bad_before = len(validator.bad)
        self._add_missing(entries, path, validator)
        values = {}
        for key in entries:
            values[key] = self._read_entry(key, entries, (*path, key), validator)
        if len(validator.bad) > bad_before:
            return None
        if self._rule:
            self._rule(values)
        return self._make(**values)

    def _read_entry(self, key: str, entries: Mapping[str, object], path: Path, validator: Validator) -> Any:
        if key in self.keys:
            return validator.read(self.keys[key].type, entries[key], path)
        if validator.is_full:  # the closest words of thousands of keys take seconds
            validator.bad.add(path)
        else:
            validator.add_key(self._unknown(key, entries), path)
        return None

    def _add_missing(self, entries: dict[str, object], path: Path, validator: Validator) -> None:
        """Report each required key that is absent, except where an unknown key is a misspelling of it."""
        missing = [name for name, key in self.keys.items() if key.required and name not in entries]
        if not missing:
            return
        broken = validator.document.broken
        unknown = [key for key in entries if key not in self.keys and (*path, key) not in broken]
        meant = {self._nearest(key, entries) for key in unknown[:MAX_PROBLEMS] if self.reports_unknown}
        for key in missing:
            if key in meant or (*path, "<<") in broken:
                validator.bad.add((*path, key))
                continue
            advice = f"write {f'{key}: …' if path else _EXAMPLES[key]}"
            invalid = Invalid("missing-key", f"{quoted(key)} is missing", "expected beside this", advice)
            validator.add(invalid, (*path, key), validator.document.values[path])

    def _unknown(self, key: str, entries: Collection[str]) -> Invalid:
        advice = self.misplaced.get(key)
        if advice is None:
            near = self._nearest(key, entries)
            advice = f"write {near}" if near else f"the keys here are {', '.join(self.keys)}"
        strange = syntax.strange_characters(key)
        label = f"the key contains {strange}" if strange else ""
        return Invalid("unknown-key", f"there is no key {quoted(key)} here", label, advice)

    def _nearest(self, key: str, entries: Collection[str]) -> str | None:
        synonym = _SYNONYMS.get(key)
        if synonym in self.keys and synonym not in entries:
            return synonym
        return syntax.nearest(key, self.keys, 0.7)


def _add_duplicates(entries: list[Any], key: str, path: Path, validator: Validator) -> None:
    """Report each entry whose value at a key, or "" for the entry itself, is that of an entry before it."""
    seen: dict[str, Path] = {}
    for index, entry in enumerate(entries):
        place: Path = (*path, index, key) if key else (*path, index)
        name = entry.get(key) if key and isinstance(entry, dict) else entry
        if not isinstance(name, str) or place in validator.bad or seen.setdefault(name, place) == place:
            continue
        first = validator.document.place(validator.document.values[seen[name]])
        message = f"{quoted(name)} is given twice"
        invalid = Invalid("duplicate-name", message, f"it is also {first}")
        validator.add(invalid, place, validator.document.values[place])


def _check_size(entries: Collection[object], path: Path, minimum: int, maximum: int | None) -> None:
    if len(entries) < minimum:
        raise Invalid("empty", f"{subject(path)} is empty", "expected at least one entry")
    if maximum is not None and len(entries) > maximum:
        raise Invalid("too-many", f"{subject(path)} has more than {maximum} entries", f"at most {maximum}")


def _without_none(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
