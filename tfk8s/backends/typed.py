"""A check that values from a file or a socket have the types that frozen dataclasses declare."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def require_types(value: T) -> T:
    """Return a dataclass or a named tuple, if all its parts have the declared types.

    Raises:
        TypeError: a part has another type; the text names the part.
    """
    _require(value, type(value), type(value).__name__)
    return value


def _require(value: Any, declared: Any, where: str) -> None:
    origin, parameters = get_origin(declared), get_args(declared)
    if declared is Any:
        return
    if origin is Literal:
        _demand(any(value == choice and type(value) is type(choice) for choice in parameters), value, declared, where)
    elif origin in (Union, types.UnionType):
        _demand(any(_has_type(value, choice, where) for choice in parameters), value, declared, where)
    elif origin is not None:
        _demand(isinstance(value, origin) and not isinstance(value, str), value, declared, where)
        _require_parts(value, parameters, where)
    else:
        allowed = (int, float) if declared is float else declared or type(None)
        is_number = declared in (int, float) and isinstance(value, bool)
        _demand(isinstance(value, allowed) and not is_number, value, declared, where)
        for name, part in _fields(value.__class__).items():
            _require(getattr(value, name), part, f"{where}.{name}")


def _require_parts(value: Any, parameters: Sequence[Any], where: str) -> None:
    """Check the parts of a collection. A tuple is declared as `tuple[X, ...]`."""
    if isinstance(value, Mapping):
        key_type, part_type = parameters
        for key, part in value.items():
            _require(key, key_type, where)
            _require(part, part_type, f"{where}[{key!r}]")
    elif isinstance(value, Collection):
        for number, part in enumerate(value):
            _require(part, parameters[0], f"{where}[{number}]")


def _has_type(value: object, declared: Any, where: str) -> bool:
    try:
        _require(value, declared, where)
    except TypeError:
        return False
    return True


def _demand(holds: bool, value: object, declared: Any, where: str) -> None:
    if not holds:
        shown = getattr(declared, "__name__", str(declared)) if get_origin(declared) is None else str(declared)
        raise TypeError(f"{where} is {type(value).__name__}, expected {shown}")


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    """Return the declared types of the fields of a dataclass or a named tuple; none of another type."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return get_type_hints(kind) if hasattr(kind, "_fields") else {}
