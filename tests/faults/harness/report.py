"""Writes docs/reliability.md from a run of the tables of faults."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from harness.command import Ended
from harness.row import USABLE, VERDICT, Row

Found = tuple[Row, str, Ended]
FOUND = pytest.StashKey[list[Found]]()

_ROOT = Path(__file__).parents[3]
_LONGEST = 240
_WIDTH = 120
_TITLES = {"local": "On this machine", "kind": "On Kubernetes"}

_HEAD = f"""# Reliability

Each entry of this page is a fault that the tests inject, on this machine (tests/faults/rows/local.py,
`make test-faults`) or in a kind cluster (tests/faults/rows/kube.py, `make test-cluster-faults`). `make reliability`
runs all of them on two busy cores and writes this page.

An entry names the fault, the moment, the exit code of the user's command, and the time from the fault to the end of the
command. The quote is the command's message. Afterwards the cluster is usable, unless the entry says otherwise.

Each command has to end within {VERDICT:.0f} s, or within its own deadline. A command that continues after the fault may
take longer.

| exit code | meaning |
| --- | --- |
| 0 | success |
| 1 | the cluster failed |
| 2 | bad input |
| 3 | a task failed |
| 124 | a timeout |
| 128 + signal | ended by a signal |
"""


def page(found: Sequence[Found], before: str, tables: Mapping[str, Sequence[Row]]) -> str:
    """Return the page; the entries are in the order of the tables.

    Args:
        found: the results of this run, which may be for some rows only.
        before: the page so far, which keeps its entries for other rows.
        tables: all rows of each place.
    """
    sections = dict(re.findall(r"^## (.*)\n\n((?:(?!## ).*\n)*)", before, re.MULTILINE))
    parts = []
    for place, title in _TITLES.items():
        entries = _entries(sections.get(title, ""))
        entries |= {_key(row): _entry(row, ended) for row, where, ended in found if where == place}
        chosen = [entries[key] for row in tables[place] if (key := _key(row)) in entries]
        parts += [f"\n## {title}\n\n{''.join(chosen)}"] if chosen else []
    return _HEAD + "".join(parts)


def _key(row: Row) -> str:
    return f"{row.fault}, {row.when}"


def _entries(section: str) -> dict[str, str]:
    """Return the entries of a section of the page, by their rows."""
    entries = re.findall(r"^- (?:(?!- ).*\n?)+", section, re.MULTILINE)
    return {" ".join(entry[2:].split()).partition(": exit code ")[0]: f"{entry.rstrip()}\n" for entry in entries}


def _entry(row: Row, ended: Ended) -> str:
    left = "" if row.left == USABLE else f"; leaves {row.left}"
    headline = f"{_key(row)}: exit code {ended.code} after {ended.seconds:.1f} s{left}"
    return _wrapped(headline, "- ", "  ") + _wrapped(_message(row, ended), "  > ", "  > ")


def _wrapped(text: str, first: str, following: str) -> str:
    lines = textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=following, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"{line}\n" for line in lines)


def _message(row: Row, ended: Ended) -> str:
    """Return the line that the row is about, without what differs from run to run."""
    if not row.words:
        return ""
    line = next((line for line in ended.err.splitlines() if row.words[0] in line), "")
    line = line.removeprefix("error: ").removeprefix("tfk8s: ").replace(f"{_ROOT}/", "").replace(str(_ROOT), ".")
    line = re.sub(r"(kill -CONT|pid) \d+", r"\1 PID", line)
    line = re.sub(r"(127\.0\.0\.1:)\d+|((?:tfk8s-faults|script)-)[0-9a-f]{6}| on \[[0-9a-f:]+\]:53", r"\1\2…", line)
    line = re.sub(r"/\S*/tfk8s/(?!tfk8s\.zip)", "~/.local/state/tfk8s/", line).strip()
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
