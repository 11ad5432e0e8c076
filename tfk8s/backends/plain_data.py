"""Frozen data as plain data, which JSON holds, and back: mappings, lists and scalars.

What is read comes from a file or a socket. So each part must have the type that the dataclasses declare.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import types
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import JobFile

T = TypeVar("T")


def job_file_to_dict(job_file: JobFile) -> dict[str, Any]:
    """Return a job file as plain data, with `jobs` as a map by name in the same order."""
    data: dict[str, Any] = as_plain(job_file)
    return {**data, "jobs": {job["name"]: job for job in data["jobs"]}}


def job_file_from_dict(plain: Mapping[str, Any]) -> JobFile:
    """Return the job file from the data of `job_file_to_dict`; raises what `from_plain` does, and LookupError."""
    return from_plain(JobFile, {**plain, "jobs": list(plain["jobs"].values())})


def as_plain(value: Any) -> Any:
    """Return a value with its dataclasses as mappings, its tuples as lists, and its quantities as their text."""
    if isinstance(value, Quantity):
        return value.text
    if dataclasses.is_dataclass(value):
        return {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: as_plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [as_plain(part) for part in value]
    return value


def from_plain(kind: type[T], plain: object) -> T:
    """Return the dataclass from the data of `as_plain`, of which parts may be dataclasses already.

    Raises:
        TypeError, ValueError, ArithmeticError: a part has another type, or is no quantity; the text names the part.
    """
    made: T = _read(kind, plain, kind.__name__)
    return made


def _read(declared: Any, plain: Any, where: str) -> Any:
    if declared is Any or type(plain) is declared:
        return plain
    origin, parameters = get_origin(declared), get_args(declared)
    if origin in (Union, types.UnionType):
        return _read_choice(parameters, plain, where)
    if origin in (tuple, list):
        _require(isinstance(plain, list), plain, declared, where)
        return origin(_read(parameters[0], part, f"{where}[{number}]") for number, part in enumerate(plain))
    if origin is not None:
        _require(isinstance(plain, Mapping), plain, declared, where)
        return {key: _read(parameters[1], part, f"{where}[{key!r}]") for key, part in plain.items()}
    if declared is Quantity:
        _require(isinstance(plain, str), plain, declared, where)
        return Quantity.parse(plain)
    if dataclasses.is_dataclass(declared):
        return _read_dataclass(declared, plain, where)
    return _read_scalar(declared, plain, where)


def _read_choice(choices: Collection[Any], plain: Any, where: str) -> Any:
    """Return a value of one of the types of a union."""
    if plain is None and types.NoneType in choices:
        return None
    *others, last = (choice for choice in choices if choice is not types.NoneType)
    for choice in others:
        with contextlib.suppress(TypeError, ValueError):
            return _read(choice, plain, where)
    return _read(last, plain, where)


def _read_dataclass(kind: Any, plain: Any, where: str) -> Any:
    _require(isinstance(plain, Mapping), plain, kind, where)
    declared = _fields(kind)
    return kind(**{name: _read(declared.get(name, Any), part, f"{where}.{name}") for name, part in plain.items()})


def _read_scalar(declared: Any, plain: Any, where: str) -> Any:
    if issubclass(declared, enum.Enum):
        return declared(plain)
    accepted = (int, float) if declared is float else declared
    is_boolean = declared in (int, float) and isinstance(plain, bool)
    _require(isinstance(plain, accepted) and not is_boolean, plain, declared, where)
    return plain


def _require(holds: bool, value: object, declared: Any, where: str) -> None:
    if not holds:
        shown = declared.__name__ if get_origin(declared) is None else declared
        raise TypeError(f"{where} is {type(value).__name__}, expected {shown}")


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    """Return the declared types of a dataclass' fields."""
    return get_type_hints(kind)
