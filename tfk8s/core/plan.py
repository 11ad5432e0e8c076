"""What making a cluster so would change, or did: values that can be printed, compared and tested whole."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfk8s.core.spec import Task

_WORD = re.compile(r"[\w-]+", re.ASCII)
_LONGEST = 100


class Action(enum.StrEnum):
    """What happens to a thing."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Field:
    """A value that differs.

    Attributes:
        path: where it stands, such as `spec.template.spec.containers[server].image`.
        before, after: None where it isn't there.
    """

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.before)} → {_shown(self.after)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happens to one thing.

    Attributes:
        kind, name: which: a Kubernetes object, or on this machine the cluster.
        action: what.
        fields: what differs, where it is changed.
    """

    kind: str
    name: str
    action: Action
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What making a cluster so takes; nothing where it is so already.

    Attributes:
        name: the cluster's.
        changes: in the order in which they are made.
        restarts: the tasks that run and are started anew.
        refusal: why it is not done all the same, or "".
    """

    name: str
    changes: tuple[Change, ...] = ()
    restarts: tuple[Task, ...] = ()
    refusal: str = ""

    def __bool__(self) -> bool:
        return bool(self.changes or self.restarts)


def compare(kind: str, name: str, before: Any, after: Any) -> Change | None:
    """Return what happens to a thing, given as plain data before and after (None: it isn't there); None for nothing."""
    if before is None or after is None:
        return Change(kind=kind, name=name, action=Action.CREATE if before is None else Action.REMOVE)
    found = tuple(fields(before, after))
    return Change(kind=kind, name=name, action=Action.CHANGE, fields=found) if found else None


def fields(before: Any, after: Any, path: str = "") -> Iterator[Field]:
    """Yield the values in which plain data differs; what is in a list and has a name is compared by it."""
    old, new = _parts(before), _parts(after)
    if old is None or new is None or isinstance(before, dict) != isinstance(after, dict):
        if before != after:
            yield Field(path, before, after)
        return
    for key in sorted({*old, *new}):
        word = f".{key}" if isinstance(before, dict) and _WORD.fullmatch(key) else f"[{key}]"
        yield from fields(old.get(key), new.get(key), (path + word).lstrip("."))


def _parts(value: Any) -> Mapping[str, Any] | None:
    """Return the parts of a value by their key; None where it is to be compared as a whole."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) and "name" in part for part in value):
        named = {str(part["name"]): part for part in value}
        return named if len(named) == len(value) > 0 else None
    return None


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return f"a text of {value.count(chr(10))} lines" if "\n" in value else _short(value) or '""'
    if isinstance(value, dict) and "tasks" in value:
        return f"{value['tasks']} task{'' if value['tasks'] == 1 else 's'}"
    return _short(json.dumps(value, separators=(", ", ": ")))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
