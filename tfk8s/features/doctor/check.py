"""The result of a check of `doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The result of a check."""

    OK = "ok"
    NOTE = "note"  # nothing is missing, and there is something to know
    MISSING = "missing"  # a requirement is not met
    UNKNOWN = "unknown"  # the check was not possible


@dataclass(frozen=True, slots=True)
class Check:
    """A check and its result.

    Attributes:
        name: the name of the requirement.
        state: the result.
        detail: the reason, or more about the result.
        help: advice, as a command if there is one; "" if nothing needs to be done.
    """

    name: str
    state: State
    detail: str
    help: str = ""


def complete(checks: Iterable[Check]) -> bool:
    """Return whether no requirement is missing."""
    return all(check.state is not State.MISSING for check in checks)
