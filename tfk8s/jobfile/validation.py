"""What is wrong with the values of a job file, in the words of its user."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from tfk8s.errors import Problem, quoted
from tfk8s.jobfile import syntax
from tfk8s.jobfile.document import MAX_PROBLEMS, Document, Path, Place, subject
from tfk8s.jobfile.scalars import AmbiguousScalar
from tfk8s.jobfile.types import Type
from tfk8s.jobfile.values import Invalid

if TYPE_CHECKING:
    pass  # REMOVED IMPORT

_WORDS: dict[type, str] = {str: "text", dict: "a mapping", list: "a list"}


class Validator:
    """What reading a document's values finds, in the order of the file.

    Attributes:
        document: where they stand.
        bad: the paths of all that are not right.
        problems: what is wrong, as far as anybody will read.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.bad: set[Path] = set()
        self.problems: list[Problem] = []

    @property
    def is_full(self) -> bool:
        """Whether nobody will read more."""
        return len(self.problems) > MAX_PROBLEMS

    def read(self, kind: Type, value: object, path: Path, *, is_key: bool = False) -> Any:
        """Return what a value means, or the key that the path ends in; None where it is wrong, and has been said."""
        if path in self.document.broken:
            self.bad.add(path)
            return None
        try:
            if type(value) not in kind.takes:
                raise self._wrong_type(kind, value, path)
            return kind.read(value, path, self)
        except Invalid as refused:
            self.add(refused, path, (self.document.keys if is_key else self.document.values)[path])
            return None

    def add(self, refused: Invalid, path: Path, place: Place) -> None:
        """Say that what is, or should be, at a path is wrong."""
        self.bad.add(path)
        if not self.is_full:
            message = str(refused)
            self.problems.append(
                self.document.problem(refused.code, message, place, path, label=refused.label, help=refused.help)
            )

    def _wrong_type(self, kind: Type, value: object, path: Path) -> Invalid:
        raw, label = self.document.raw(path), f"expected {kind.expected}"
        if not isinstance(value, AmbiguousScalar):
            message = f"{subject(path)} can't be {_WORDS.get(type(value), raw)}"
            return Invalid("wrong-type", message, label, kind.rewritten(value, raw))
        if value.is_nothing:
            return Invalid("no-value", f"{subject(path)} has no value", label)
        message = f"YAML parsers disagree on what {quoted(value.text)} means"
        return Invalid("unclear", message, label, kind.rewritten(value, value.text))


_OTHER_WORDS = {"replicas": "tasks", "count": "tasks", "kind": "apiVersion"}
_EXAMPLES = {"apiVersion": "apiVersion: tfk8s.dev/v1", "name": "name: mnist", "jobs": "jobs: {worker: 2}"}


class List(Type):
    """A list, which is read as a tuple."""

    takes = (list,)
    expected = "a list"
    absent: object = []

    def __init__(self, entries: Type, *, least: int = 0, most: int | None = None) -> None:
        limits = {"minItems": least or None, "maxItems": most}
        self.schema = {"type": "array", "items": entries.schema, **_given(limits)}
        self._entries, self._least, self._most = entries, least, most

    def read(self, entries: Any, path: Path, report: Validator, /) -> Any:
        """Return the entries."""
        _check_size(entries, path, self._least, self._most)
        return tuple(report.read(self._entries, entry, (*path, index)) for index, entry in enumerate(entries))

    def rewritten(self, value: object, text: str, /) -> str | None:
        """Return the list that one text would be."""
        return f"write [{text}]" if isinstance(value, str) else None


class Map(Type):
    """A mapping of any keys of a kind."""

    takes = (dict,)
    expected = "a mapping"
    absent: object = {}

    def __init__(self, keys: Type, values: Type, *, least: int = 0, most: int | None = None) -> None:
        limits = {"minProperties": least or None, "maxProperties": most}
        self.schema = {
            "type": "object", "propertyNames": keys.schema, "additionalProperties": values.schema, **_given(limits)
        }  # fmt: skip
        self._keys, self._values, self._least, self._most = keys, values, least, most

    def read(self, entries: Any, path: Path, report: Validator, /) -> Any:
        """Return the entries."""
        _check_size(entries, path, self._least, self._most)
        read = {}
        for key, one in entries.items():
            report.read(self._keys, key, (*path, key), is_key=True)
            read[key] = report.read(self._values, one, (*path, key))
        return read


class Key:
    """A key of a record."""

    def __init__(
        self, kind: Type, description: str, *examples: object, default: object = None, required: bool = False
    ) -> None:
        """Make one: `default` is what an absent key means, which is for `spec` to know."""
        self.kind, self.required = kind, required
        default = kind.absent if default is None and not required else default
        self._said = _given({"description": description, "examples": list(examples) or None, "default": default})

    def schema(self, name: str) -> dict[str, Any]:
        """Return what the JSON Schema says."""
        title = {} if isinstance(self.kind, Record) else {"title": name.replace("_", " ").title()}
        return self.kind.schema | self._said | title


class Record(Type):
    """A mapping of known keys.

    Attributes:
        keys: those that there are.
        elsewhere: keys that stand elsewhere in a job file, and what to say to who writes them here.
    """

    takes = (dict,)
    expected = "a mapping"

    def __init__(
        self,
        name: str,
        description: str,
        keys: dict[str, Key],
        *,
        make: Callable[..., object] = dict,
        rule: Callable[[dict[str, Any]], None] | None = None,
        said: Mapping[str, object] | None = None,
    ) -> None:
        """Make one.

        `make` and `rule` are called with the values of the keys that are given. The latter raises `Refused` where they
        don't go together, and is `said` in the JSON Schema.
        """
        self.name, self.keys = name, keys
        self.elsewhere: dict[str, str] = {}
        self.schema = {"$ref": f"#/$defs/{name}"}
        self._description, self._make, self._rule, self._said = description, make, rule, said or {}

    def definition(self) -> dict[str, Any]:
        """Return what `schema` refers to."""
        return {
            "title": self.name,
            "description": self._description,
            "type": "object",
            "properties": {name: key.schema(name) for name, key in self.keys.items()},
            "additionalProperties": False,
            **_given({"required": [name for name, key in self.keys.items() if key.required] or None}),
            **self._said,
        }

    def read(self, value: Any, path: Path, report: Validator, /) -> Any:
        """Return what is made of the values."""
        before = len(report.bad)
        self._find_missing(value, path, report)
        read = {}
        for key, one in value.items():
            here = (*path, key)
            if key in self.keys:
                read[key] = report.read(self.keys[key].kind, one, here)
            elif report.is_full or here in report.document.broken:
                report.bad.add(here)
            else:
                report.add(self._unknown(key), here, report.document.keys[here])
        if len(report.bad) > before:
            return None
        if self._rule:
            self._rule(read)
        return self._make(**read)

    def _find_missing(self, value: dict[str, object], path: Path, report: Validator) -> None:
        """Report keys that must be given and are not, unless an unknown one was meant as it."""
        missing = [key for key, one in self.keys.items() if one.required and key not in value]
        if not missing:
            return
        broken = report.document.broken
        unknown = [key for key in value if key not in self.keys and (*path, key) not in broken]
        meant = {self._nearest(key) for key in unknown[:MAX_PROBLEMS]}
        for key in missing:
            here = (*path, key)
            if key in meant or (*path, "<<") in broken:
                report.bad.add(here)
                continue
            help = f"write {_EXAMPLES.get(key, f'{key}: …')}"  # noqa: A001
            refused = Invalid("missing-key", f"{quoted(key)} is missing", "expected beside this", help)
            report.add(refused, here, report.document.values[path])

    def _unknown(self, key: str) -> Invalid:
        if near := self._nearest(key):
            help = f"write {near}"  # noqa: A001
        else:
            help = self.elsewhere.get(key, f"the keys here are {', '.join(self.keys)}")  # noqa: A001
        strange = syntax.strange_characters(key)
        return Invalid("unknown-key", f"there is no key {quoted(key)} here", strange and f"{strange} is in it", help)

    def _nearest(self, key: str) -> str | None:
        other = _OTHER_WORDS.get(key)
        return other if other in self.keys else syntax.nearest(key, self.keys, 0.7)


def _check_size(value: Collection[object], path: Path, least: int, most: int | None) -> None:
    if len(value) < least:
        raise Invalid("empty", f"{subject(path)} is empty", "expected at least one entry")
    if most is not None and len(value) > most:
        raise Invalid("too-many", f"{subject(path)} has more than {most} entries", f"at most {most}")


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
