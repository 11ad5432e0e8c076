"""The entry of a cluster at a place: the last one of its name there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tfk8s.backends.history import files
from tfk8s.backends.history.files import EntryFiles
from tfk8s.core.history.facts import SHARED, Fact, is_number
from tfk8s.errors import Tfk8sError


def newest(name: str, location: object) -> EntryFiles | None:
    """Return the entry of the cluster that started last at a place; None without one.

    Entries have numbers in the order of starts, but for those that came from a claim. What others have written there
    comes before no entry of this user that is open.
    """
    found: list[tuple[float, EntryFiles]] = []
    for entry in files.newest_first(name):
        facts = entry.facts_of("start", "end", SHARED)
        start = _start(facts)
        if start.get("location") != location:
            continue
        is_own = not (is_from_claim(facts) and is_from_claim(entry.facts()))  # the very first one counts
        if is_own and not any(fact["kind"] == "end" for fact in facts):
            return entry
        moment = start.get("time")
        found.append((moment if is_number(moment) else 0.0, entry))  # type: ignore[arg-type]
        if is_own:
            break
    return max(found, key=lambda pair: pair[0])[1] if found else None


def advice(name: str, location: str) -> str:
    """Return the end of a help for a cluster that is not there: its last entry; "" without one."""
    with contextlib.suppress(OSError, Tfk8sError):
        if entry := newest(name, location):
            return f"; tfk8s status {entry.id} shows how the last one ended"
    return ""


def location_of(entry: EntryFiles) -> object:
    """Return where the cluster of an entry is; None if its start is damaged."""
    return _start(entry.facts_of("start")).get("location")


def is_from_claim(facts: Sequence[Fact]) -> bool:
    """Return whether an entry came from a shared history: its facts begin with the name of the record there."""
    return bool(facts) and facts[0].get("kind") == SHARED


def _start(facts: Sequence[Fact]) -> Fact:
    return next((fact for fact in facts if fact.get("kind") == "start"), {})
