"""docs/reliability.md, from what a run of the table found."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from commands import Ended
from rows import VERDICT, Row

Found = tuple[Row, str, Ended]
FOUND = pytest.StashKey[list[Found]]()

_LONGEST = 240

_HEAD = f"""# Reliability

What happens when something breaks: each row was made to happen, on one machine (`make test-faults`; the table is
tests/faults/table.py) or in a cluster of kind's (`make test-cluster-faults`; tests/faults/kube_table.py), and is a
test. The verdict is the time from the fault to the end of the user's command, in the run that wrote its row, on two
busy cores; no row may take more than {VERDICT:.0f} s, or than the deadline that the command was given, but where the
command goes on. Exit codes: 0; 1 the cluster failed; 2 bad input; 3 a task failed; 124 a timeout; 128 + the signal
that ended it.

Written by `make reliability`.

| fault | when | where | exit | verdict | it says | left behind |
| --- | --- | --- | --- | --- | --- | --- |
"""


def page(found: Sequence[Found], before: str) -> str:
    """Return the page; the rows are in the order in which they were found, which is the table's.

    Args:
        found: by this run, which may be one of a single place.
        before: the page as it was, whose rows of other places stay.
    """
    new = [_line(*one) for one in found]
    kept = [line for line in before.splitlines(keepends=True) if _place(line) in _PLACES - set(map(_place, new))]
    return _HEAD + "".join(sorted((*kept, *new), key=_place, reverse=True))


_PLACES = {"local", "kind"}


def _place(line: str) -> str:
    return line.split(" | ")[2] if line.count(" | ") > 2 else ""


def _line(row: Row, where: str, ended: Ended) -> str:
    cells = (row.fault, row.when, where, str(ended.code), f"{ended.seconds:.1f} s", _said(row, ended), row.left)
    return f"| {' | '.join(cells)} |\n"


def _said(row: Row, ended: Ended) -> str:
    """Return the line that the row is about, without what differs from run to run."""
    if not row.words:
        return ""
    line = next((line for line in ended.err.splitlines() if row.words[0] in line), "")
    line = re.sub(r"kill -CONT \d+", "kill -CONT PID", line.removeprefix("error: ").removeprefix("tfk8s: "))
    line = re.sub(r"(127\.0\.0\.1:)\d+|((?:tfk8s-faults|script)-)[0-9a-f]{6}| on \[[0-9a-f:]+\]:53", r"\1\2…", line)
    line = re.sub(r"/\S*/tfk8s/", "~/.local/state/tfk8s/", line)
    line = line.replace("|", "\\|").strip()
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
