"""A file that was read: its data, and where each part of it stands in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tfk8s.errors import Problem, quoted

MAX_PROBLEMS = 100  # that are said

# Where something is in the data: keys and indices.
Path = tuple[str | int, ...]


class Place(NamedTuple):
    """Where a key or a value stands: line and column from 1, and its length on that line."""

    line: int
    column: int
    length: int


@dataclass(slots=True)
class Document:
    """What a file says, and what is wrong with how it says it.

    Attributes:
        lines: the text.
        data: dicts with text as keys, lists, text, numbers, booleans and `Unclear`; None where nothing could be read.
        keys, values: where they stand.
        broken: what has a problem already, so that nothing else is said of it.
        problems: what is wrong, in the order of the file.
        complete: whether the whole text was read.
    """

    lines: list[str]
    data: object = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    broken: set[Path] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    complete: bool = False

    def raw(self, path: Path) -> str:
        """Return a value as it stands in the file, as far as it is on one line."""
        place = self.values[path]
        return self.lines[place.line - 1][place.column - 1 :][: place.length]

    def problem(
        self,
        code: str,
        message: str,
        place: Place,
        path: Path = (),
        *,
        label: str = "",
        help: str | None = None,  # noqa: A002
    ) -> Problem:
        """Return a problem with its line."""
        return Problem(
            code=code,
            message=message,
            path=dotted(path),
            line=place.line,
            column=place.column,
            length=place.length,
            source=self.lines[place.line - 1] if place.line <= len(self.lines) else "",
            label=label,
            help=help,
        )


def dotted(path: Path) -> str:
    """Return a path as text: `jobs.worker.volumes[0]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[A-Za-z0-9_-]+", step):
            text += f".{step}" if text else step
        else:
            text += f"[{quoted(step)}]"
    return text


def subject(path: Path) -> str:
    """Return what messages call the value at a path."""
    if not path:
        return "the job file"
    step = path[-1]
    if isinstance(step, str):
        return quoted(step)
    return f"an entry of {quoted(str(next(s for s in reversed(path) if isinstance(s, str))))}"
