"""Files that come with tfk8s and are no code: in the package where pip installed it, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def path(name: str) -> Path:
    """Return where such a file or folder is; pyproject.toml has the wheel's list."""
    inside = _PACKAGE / "shipped" / name
    return inside if inside.exists() else _PACKAGE.parent / name
