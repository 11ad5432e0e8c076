"""What `doctor` finds: one check a line, each with what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    MISSING = "missing"  # something that is needed
    UNKNOWN = "unknown"  # it could not be found out


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what.
        state: how it is.
        detail: what was found.
        help: what to do, as a command where there is one; "" where nothing has to be done.
    """

    name: str
    state: State
    detail: str
    help: str = ""


def complete(checks: Iterable[Check]) -> bool:
    """Return whether nothing that is needed is missing."""
    return all(check.state is not State.MISSING for check in checks)
