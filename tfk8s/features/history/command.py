"""The command that lists what ran: history."""

from __future__ import annotations

from typing import Annotated

import typer

from tfk8s.backends.history import files, index
from tfk8s.cli import options
from tfk8s.cli.output import document, note, say
from tfk8s.core.history.entry import OPEN, Row
from tfk8s.errors import Tfk8sError
from tfk8s.features.history import show
from tfk8s.features.history.here import complete_lost

_SHOWN = 30


def history(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Only the clusters of this name; default: all.", show_default=False),
    ] = None,
    last: Annotated[
        int,
        typer.Option(
            "--last", metavar="N", callback=options.whole_number(1), help="List the last N entries; default: 30."
        ),
    ] = _SHOWN,
    output: options.Output = None,
) -> None:
    """List the clusters that ran, the newest first.

    An entry NAME@NUMBER stays after `down`, a limit or a crash. `status`, `logs` and `events` take an entry in place of
    a cluster. A commit with * had changes. The history is in files of this user on this machine.

    Examples:
        tfk8s history
        tfk8s history --last 5 mnist
        tfk8s status mnist@3
        tfk8s logs mnist@3 worker/1

    JSON: a list of entries, each with entry, name, number, location, who, started, ended, state (open, ended, lost),
    exit_code, reason, progress, commit, image, hours (cpu, memory in GiB, gpus: as requested), size.
    """
    complete_lost()
    listed = [_now(row) for row in _rows(name)[:last]]
    if output is not None:
        document([show.document(row) for row in listed])
    elif listed:
        say(show.rows(listed))
    else:
        note(f'nothing named "{name}" ran' if name else "nothing ran yet")


def _rows(name: str | None) -> list[Row]:
    return [row for row in index.rows() if name in (None, row.name)]


def _now(row: Row) -> Row:
    """Return the row of an open entry as its facts tell it now."""
    if row.state != OPEN:
        return row
    try:
        return files.find(row.name, row.number).read().row
    except Tfk8sError:  # it is damaged, or another command removes it
        return row
