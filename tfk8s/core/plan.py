"""The changes that applying a job file makes, as plain values."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfk8s.core.lifetime import format_duration
from tfk8s.core.price.rates import Price, Rates
from tfk8s.core.resources import NOTHING, Resources
from tfk8s.core.spec import JobFile, Task

_WORD = re.compile(r"[\w-]+", re.ASCII)
_MAX_SHOWN = 100  # characters of a value
_CONTEXT = 20  # of them before the first difference


def _durations(kind: type[Any], prefix: str = "") -> Iterator[str]:
    """Yield the paths of the fields that are durations, in a dataclass of the job file."""
    for field in dataclasses.fields(kind):
        if field.metadata.get("type") == "DURATION":
            yield f"{prefix}{field.name}"
        elif dataclasses.is_dataclass(field.default):
            yield from _durations(type(field.default), f"{field.name}.")


_DURATIONS = frozenset(_durations(JobFile))


class Action(enum.StrEnum):
    """The verb of a change."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"


class Scaling(enum.StrEnum):
    """The effect of other numbers of tasks, in words; false if nothing changed."""

    UNCHANGED = "nothing changed"
    IN_PLACE = "scaled: the other tasks continue"
    RESTARTED = "scaled: all tasks restarted"

    def __bool__(self) -> bool:
        return self is not Scaling.UNCHANGED


@dataclass(frozen=True, slots=True)
class Field:
    """A field whose value changes.

    Attributes:
        path: the path of the field, such as `spec.template.spec.containers[server].image`.
        before, after: the values; None if the field is missing.
    """

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        show = _duration if self.path in _DURATIONS else _shown
        before, after = _cut(show(self.before), show(self.after))
        return f"{self.path}: {before} → {after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one object.

    Attributes:
        kind, name: a Kubernetes object, or on this machine the cluster.
        action: the verb.
        fields: the fields that differ, if the action is CHANGE.
    """

    kind: str
    name: str
    action: Action
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All changes of one cluster; false if nothing changes.

    Attributes:
        name: the cluster's name.
        changes: the changes of objects, in the order of applying.
        restarts: the running tasks that restart.
        refusal: the reason why `up` refuses the changes, or "".
        requests_before, requests: what all tasks request together, before the changes and after them.
        billed_before, billed: the same under the names that rates have, on Kubernetes.
        rates: those of the namespace; None without any.
        way_out: the way to other networks of a new cluster on this machine; else "".
    """

    name: str
    changes: tuple[Change, ...] = ()
    restarts: tuple[Task, ...] = ()
    refusal: str = ""
    requests_before: Resources = NOTHING
    requests: Resources = NOTHING
    billed_before: Resources = NOTHING
    billed: Resources = NOTHING
    rates: Rates | None = None
    way_out: str = ""

    def __bool__(self) -> bool:
        return bool(self.changes or self.restarts)

    @property
    def prices(self) -> tuple[Price, Price] | None:
        """The prices before the changes and after them; None without rates."""
        if self.rates is None:
            return None
        return self.rates.price(self.billed_before), self.rates.price(self.billed)


def compare(kind: str, name: str, before: Any, after: Any) -> Change | None:
    """Return the change of an object, or None if nothing changes.

    Args:
        kind: the kind of the object.
        name: the name of the object.
        before: the object as plain data, or None if the object does not exist.
        after: the object after the change, likewise.
    """
    if before is None or after is None:
        return Change(kind=kind, name=name, action=Action.CREATE if before is None else Action.REMOVE)
    differences = tuple(fields(before, after))
    return Change(kind=kind, name=name, action=Action.CHANGE, fields=differences) if differences else None


def fields(before: Any, after: Any, path: str = "") -> Iterator[Field]:
    """Yield the fields that differ between plain data; items of a list that have a name are compared by name."""
    old, new = _parts(before), _parts(after)
    if old is None or new is None or isinstance(before, dict) != isinstance(after, dict):
        if before != after:
            yield Field(path, before, after)
        return
    for key in sorted({*old, *new}):
        word = f".{key}" if isinstance(before, dict) and _WORD.fullmatch(key) else f"[{key}]"
        yield from fields(old.get(key), new.get(key), (path + word).lstrip("."))


def _parts(value: Any) -> Mapping[str, Any] | None:
    """Return the parts of a value by key, or None if the value is compared as a whole."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) and "name" in part for part in value):
        named = {str(part["name"]): part for part in value}
        return named if len(named) == len(value) > 0 else None
    return None


def _duration(seconds: int | None) -> str:
    return "none" if seconds is None else format_duration(seconds)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return f"a text of {value.count(chr(10))} lines" if "\n" in value else value or '""'
    if isinstance(value, dict) and "tasks" in value:
        return f"{value['tasks']} task{'' if value['tasks'] == 1 else 's'}"
    return json.dumps(value, separators=(", ", ": "))


def _cut(before: str, after: str) -> tuple[str, str]:
    """Return two texts that are short enough, from shortly before the first difference."""
    pairs = enumerate(zip(before, after, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(before), len(after)))
    start = 0 if max(len(before), len(after)) <= _MAX_SHOWN else max(0, same - _CONTEXT)
    return _short(before[start:], start), _short(after[start:], start)


def _short(text: str, start: int) -> str:
    return f"{'…' if start else ''}{text[:_MAX_SHOWN]}{'…' if len(text) > _MAX_SHOWN else ''}"
