"""A row of the tables: one fault at one moment, and what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.command import Command, Ended

VERDICT = 10.0  # seconds from the fault
DEADLINE = 8  # what `up` is given where nothing but time ends it
SLOWNESS = 6  # a machine on which the tests pass may be so much slower than the one that the report is about

USABLE = "the cluster, usable"
NOTHING = "nothing"
LOST = "the cluster's folder; `status` tells, `up` starts it again"
STARTED = "what `up` had started; a second `up` goes on"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault at one moment.

    Attributes:
        fault, when: the fault, and the moment.
        run: injects the fault into an environment; returns how the user's command ended.
        code: the exit codes.
        words: parts of the message, in order. The report quotes the line of the first.
        left: what is left behind.
        limit: the most seconds until the end of the command, in a run that writes the report.
        thorough: run only for the report, because other rows are similar.
    """

    fault: str
    when: str
    run: Callable[[Any], Ended]
    code: int | tuple[int, ...] = 0
    words: tuple[str, ...] = ()
    left: str = USABLE
    limit: float = VERDICT
    thorough: bool = False

    @property
    def id(self) -> str:
        return f"{self.fault}, {self.when}".replace(" ", "-").replace("`", "")


MOMENTS = {"before": "before a step", "during": "in a step", "after": "between steps"}
OWN_SESSION = "in a step of a program's own `session()`"
CONNECTED = "in a step of a plain session, by `connect`"


def both_said(program: Ended, connect: Command) -> Ended:
    """Return how a program ended, with the messages of `connect` before its own."""
    return Ended(program.seconds, program.code, program.out, connect.err + program.err)


def check(row: Row, ended: Ended) -> None:
    """Check that a row ended as it should."""
    said = f"{ended.code} after {ended.seconds:.1f} s: {ended.out}{ended.err}"
    assert ended.code in (row.code if isinstance(row.code, tuple) else (row.code,)), said
    rest = ended.err
    for words in row.words:
        assert words in rest, said
        rest = rest.partition(words)[2]
    assert ended.seconds <= SLOWNESS * row.limit, said
