"""The types of mappings whose keys a dataclass declares, with `core.job_file.keys.key`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfk8s.jobfile import types
from tfk8s.jobfile.types import Type
from tfk8s.jobfile.validation import Key, Struct

Types = Mapping[str, Type]  # by their names in declarations


def struct(kind: type, more: Types | None = None, *, title: str = "", **options: Any) -> Struct:
    """Return the type of mappings that become a dataclass.

    Args:
        kind: the dataclass. The first part of its docstring is the JSON Schema's description.
        more: types that `jobfile.types` does not have.
        title: the JSON Schema's title, if it is not the dataclass' name.
        options: arguments of `Struct`.
    """
    description = " ".join((kind.__doc__ or "").partition("Attributes:")[0].split())
    names = {_key(field): field.name for field in dataclasses.fields(kind)}

    def make(**values: object) -> object:
        return kind(**{names[key]: value for key, value in values.items()})

    return Struct(title or kind.__name__, description, keys(kind, more), **{"make": make, **options})


def keys(kind: type, more: Types | None = None) -> dict[str, Key]:
    """Return the keys that a dataclass declares, by their names in a job file.

    Args:
        kind: the dataclass.
        more: types that `jobfile.types` does not have.
    """
    known, declared = {**vars(types), **(more or {})}, {}
    for field in dataclasses.fields(kind):
        if field.metadata:
            default = field.default if isinstance(field.default, (str, int)) else None
            declared[_key(field)] = Key(
                known[field.metadata["type"]],
                field.metadata["description"],
                *field.metadata["examples"],
                default=None if default == "" else default,
                required=field.metadata["required"],
            )
    return declared


def _key(field: dataclasses.Field[Any]) -> str:
    """Return the key of a field; "except_" is "except", which is a word of Python."""
    return field.name.removesuffix("_")
