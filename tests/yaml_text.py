"""Reads YAML by libyaml where PyYAML has libyaml, which is ten times as fast."""

from __future__ import annotations

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(text: str) -> Any:
    """Return the data of a text of one document."""
    return yaml.load(text, _LOADER)  # noqa: S506 - a safe loader


def read_all(text: str) -> list[Any]:
    """Return the data of each document of a text."""
    return list(yaml.load_all(text, _LOADER))
