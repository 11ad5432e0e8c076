"""Descriptions of the fields of a job file, in kubectl explain's style, from the JSON Schema of job files."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from tfk8s.errors import InvalidInput, quoted
from tfk8s.jobfile import syntax
from tfk8s.jobfile.schema import JOB, json_schema

_WIDTH = 80
_FORMS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
_ANY = "any value"


def explain(path: str) -> str:
    """Return the description of a field, with the fields below it.

    Args:
        path: names separated by dots, such as "jobs.worker.gpus"; "" is the whole job file. "jobs." may be left out.

    Raises:
        InvalidInput: a job file has no such field.
    """
    schema = json_schema()
    names = _full(path, schema)
    field = schema
    for number, name in enumerate(names):
        field = _below(field, name, names[:number], schema)
    return "\n".join(_lines(names, field, schema))


def type_name(field: Any, name: Callable[[str], str] = str, value: Callable[[object], str] = json.dumps) -> str:
    """Return the type of a field in words.

    Args:
        field: a JSON Schema.
        name: makes the text for the name of a definition.
        value: makes the text for a constant.
    """
    if not isinstance(field, dict):
        return _ANY
    if reference := field.get("$ref"):
        return name(reference.rpartition("/")[2])
    if constants := [field["const"]] if "const" in field else field.get("enum"):
        return " or ".join(map(value, constants))
    forms = field.get("type", [])
    names = _FORMS | {
        "array": f"list of {type_name(field.get('items'), name, value)}",
        "object": type_name(field["then"], name, value)
        if "then" in field
        else f"mapping to {type_name(field.get('additionalProperties'), name, value)}",
    }
    return ", or ".join(names[form] for form in ([forms] if isinstance(forms, str) else forms)) or _ANY


def _full(path: str, schema: dict[str, Any]) -> list[str]:
    """Return the names of a path from the top: "worker.gpus" and "gpus" are of a job."""
    names = [name for name in path.split(".") if name]
    if not names or names[0] in schema["properties"]:
        return names
    return ["jobs", *(["NAME"] if names[0] in JOB.keys else ()), *names]


def _below(field: Any, name: str, parents: list[str], schema: dict[str, Any]) -> Any:
    fields = _fields(field, schema)
    if name in fields:
        return fields[name]
    entry = _definition(field, schema).get("additionalProperties")
    if isinstance(entry, dict) and not fields:
        return entry
    close = syntax.nearest(name, fields)
    raise InvalidInput(
        f"{quoted('.'.join(parents) or 'the job file')} has no field {quoted(name)}",
        help=(f"did you mean {close}? " if close else "")
        + f"`tfk8s explain{' ' if parents else ''}{'.'.join(parents)}` lists the fields",
    )


def _definition(field: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a field's value, or of the entries of a list."""
    if not isinstance(field, dict):
        return {}
    inner = field.get("then") or (field["items"] if field.get("type") == "array" else None)
    if isinstance(inner, dict):
        return _definition(inner, schema)
    found: dict[str, Any] = schema["$defs"][field["$ref"].rpartition("/")[2]] if "$ref" in field else field
    return found


def _fields(field: Any, schema: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = _definition(field, schema).get("properties", {})
    return fields


def _lines(names: list[str], field: Any, schema: dict[str, Any]) -> Iterator[str]:
    if names:
        yield f"FIELD: {'.'.join(names)} <{type_name(field)}>\n"
    else:
        yield f"JOB FILE: {schema['properties']['apiVersion']['const']}\n"
    definition = _definition(field, schema)
    yield from ("DESCRIPTION:", _wrapped(field.get("description") or definition.get("description", ""), 4))
    if (default := field.get("default")) not in (None, [], {}):
        yield f"    Default: {json.dumps(default)}"
    for example in field.get("examples", ()):
        yield f"    Example: {names[-1]}: {json.dumps(example, ensure_ascii=False)}"
    entry = definition.get("additionalProperties")
    shown = definition if _fields(field, schema) or not isinstance(entry, dict) else _definition(entry, schema)
    if "properties" not in shown:
        return
    yield f"\nFIELDS{'' if shown is definition else ' of each NAME'}:"
    for name, inner in shown["properties"].items():
        yield f"  {name} <{type_name(inner)}>{' -required-' if name in shown.get('required', ()) else ''}"
        yield _wrapped(inner.get("description", "") if isinstance(inner, dict) else "", 4)


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)
