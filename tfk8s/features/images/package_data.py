"""Data files of tfk8s: inside an installed package, and beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[2]


def path(name: str) -> Path:
    """Return the path of a data file or folder; pyproject.toml lists the files in the wheel."""
    installed = _PACKAGE / "shipped" / name
    return installed if installed.exists() else _PACKAGE.parent / name
