"""Job files and other frozen data as plain data: mappings, lists and scalars."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import JobFile


def job_file_to_dict(job_file: JobFile) -> dict[str, Any]:
    """Return a job file as plain data, with `jobs` as a map by name in the same order."""
    data: dict[str, Any] = as_plain(job_file)
    return {**data, "jobs": {job["name"]: job for job in data["jobs"]}}


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
