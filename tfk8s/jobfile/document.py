"""A document that was read from a job file: its data, and the location of each part in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tfk8s.errors import Problem, quoted

MAX_PROBLEMS = 100  # that are printed

# The keys and indices that lead to a part of the data.
Path = tuple[str | int, ...]


class Location(NamedTuple):
    """The line and the column of a key or a value, both from 1, and its length on that line."""

    line: int
    column: int
    length: int


@dataclass(slots=True)
class Document:
    """The data of a file, and the problems of its syntax.

    Attributes:
        lines: the text, and after it the settings of the command line.
        data: dicts with text as keys, lists, text, numbers, booleans and `AmbiguousScalar`; None if the text could not
            be read.
        keys, values: the locations of the keys and of the values.
        broken: the paths of parts that have a problem already, so that no other problem is reported there.
        problems: the problems, in the order of the file.
        complete: whether the whole text was read.
        settings: the options of the command line that stand in the last lines.
    """

    lines: list[str]
    data: object = None
    keys: dict[Path, Location] = field(default_factory=dict)
    values: dict[Path, Location] = field(default_factory=dict)
    broken: set[Path] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    complete: bool = False
    settings: list[str] = field(default_factory=list)

    def place(self, at: Location) -> str:
        """Return a line in words."""
        option, line = self._option_and_line(at)
        return f"in {option} number {line}" if option else f"on line {line}"

    def _option_and_line(self, at: Location) -> tuple[str, int]:
        """Return the option of a setting and its number, or "" and the line of the file."""
        number = at.line - (len(self.lines) - len(self.settings))
        return (self.settings[number - 1], number) if number > 0 and self.settings else ("", at.line)

    def raw(self, path: Path) -> str:
        """Return a value as the file has it; of a value on several lines, the first line."""
        location = self.values[path]
        return self.lines[location.line - 1][location.column - 1 :][: location.length]

    def problem(
        self, code: str, message: str, at: Location, path: Path = (), *, label: str = "", advice: str | None = None
    ) -> Problem:
        """Return a problem at a location, with the line."""
        option, line = self._option_and_line(at)
        return Problem(
            code=code,
            message=message,
            path=dotted(path),
            line=line,
            column=at.column,
            length=at.length,
            source=self.lines[at.line - 1] if at.line <= len(self.lines) else "",
            label=label,
            help=advice,
            option=option,
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
    """Return the name of the value at a path in messages."""
    if not path:
        return "the job file"
    step = path[-1]
    if isinstance(step, str):
        return quoted(step)
    return f"an entry of {quoted(str(next(s for s in reversed(path) if isinstance(s, str))))}"
