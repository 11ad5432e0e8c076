"""Facts of the history: what a line of a file tells, and what the facts together amount to.

A fact is a JSON object with a `kind` and a `time`, on a line of its own. Facts come from a file, and are taken for
hostile: a fact of a wrong form is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

REMOVED = "was removed by `tfk8s down`"
REMOVED_BY_OTHERS = "was removed, not by tfk8s"
LOST_RIGHTS = "lost: the rights of the pod that wrote the record were removed"
MAX_ENTRIES = 10_000  # of a history
MAX_AGE = 180 * 86400.0  # seconds since the end of an entry
MAX_TEXT = 2000  # characters
MAX_LINE = 4 << 20  # bytes of a fact: ten thousand tasks, or the largest job file with all its defaults
SHARED = "shared"  # the kind of facts that name the record of the cluster in a claim; they tell nothing of the cluster
KINDS = ("start", "requests", "verb", "verb_end", "tasks", "script", "missing", "end")
_LATEST = 1e11  # seconds since the epoch, in the year 5138
_HOUR = 3600.0

Fact = Mapping[str, Any]


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the fact in a line; None if the line is torn or damaged."""
    if len(line) > MAX_LINE:
        return None
    try:
        fact = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fact, dict) or (b"\\u" in line and not _is_text(fact)):
        return None
    return fact


def _is_text(fact: Fact) -> bool:
    """Return whether all texts of a fact can be printed: an escape of JSON may be half a character."""
    try:
        return bool(json.dumps(fact, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return False


def in_order(facts: Iterable[Fact]) -> list[Fact]:
    """Return the facts that tell what happened to the cluster, in the order of time, and else of the file."""
    return sorted(filter(tells, facts), key=lambda fact: fact["time"])


def tells(fact: Fact) -> bool:
    """Return whether a fact tells what happened to the cluster, and when."""
    return fact.get("kind") in KINDS and is_time(fact.get("time"))


def cost(facts: Iterable[Fact], end: float) -> tuple[float, str]:
    """Return what the requests have cost until a time, and the currency of the last rates; 0 and "" without rates."""
    said = [fact for fact in facts if isinstance(fact.get("requests"), dict) and is_time(fact.get("time"))]
    currencies = [currency for fact in said if (currency := text(fact["requests"], "currency"))]
    if not currencies:
        return 0.0, ""
    same = ("", currencies[-1])
    kept = [fact if text(fact["requests"], "currency") in same else {**fact, "requests": {}} for fact in said]
    return hours(kept, "price", end), currencies[-1]


def hours(facts: Iterable[Fact], name: str, end: float) -> float:
    """Return the hours of what the cluster requested, from each fact that says so to the next one, and to the end."""
    said = [(fact["time"], fact["requests"].get(name)) for fact in facts if isinstance(fact.get("requests"), dict)]
    ends = [*(time for time, _ in said[1:]), end]
    spans = zip(said, ends, strict=True) if said else ()
    seconds = ((amount, max(0.0, min(until, end) - begin)) for (begin, amount), until in spans if is_number(amount))
    return float(sum(amount * span for amount, span in seconds)) / _HOUR


def is_number(value: object) -> bool:
    """Return whether a value is a number that can be added."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def is_time(value: object) -> bool:
    """Return whether a value is a time in seconds since the epoch."""
    return is_number(value) and 0 <= value < _LATEST  # type: ignore[operator]  # a number


def text(fact: Fact, name: str) -> str:
    """Return a text of a fact; "" if it has none."""
    value = fact.get(name)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def whole(fact: Fact, name: str) -> int | None:
    """Return a whole number of a fact; None if it has none."""
    value = fact.get(name)
    return value if type(value) is int and abs(value) < 1 << 31 else None
