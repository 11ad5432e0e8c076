"""Output of commands: results on standard output, progress on standard error, colours on terminals only."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

PIPE_CLOSED = 128 + 13  # the exit code of a program that SIGPIPE ended

# The colours of phases (tfk8s.status) and of event types.
_COLOURS = {
    "Warning": "33", "Ready": "32", "Pending": "33", "Starting": "33", "Failed": "31", "Unknown": "31", "Running": "32",
    "Suspended": "33",
}  # fmt: skip
_PREFIXES = ("36", "35", "33", "32", "34", "96", "95", "93", "92", "94")

# Own colours; or what moves a cursor or turns the direction of text: C0 but tabs and new lines, DEL, C1, bidi controls.
_CONTROL = re.compile(
    "(\\x1b\\[(?:0|1;31|3[1-6]|9[1-6])m)|([\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069])"
)


def say(text: str, *, is_raw: bool = False) -> None:
    """Print a result. If the reader is gone, as in `tfk8s logs … | head`, exit quietly.

    Args:
        text: the result.
        is_raw: the text is a line of a script or a task, which is printed as it is.
    """
    try:
        print(text if is_raw else visible(text), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # drops the buffer
        raise SystemExit(PIPE_CLOSED) from None


def note(text: str, *, is_raw: bool = False) -> None:
    """Print progress; arguments as `say`."""
    try:
        print(text if is_raw else visible(text), file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def visible(text: str) -> str:
    """Return text that moves no cursor and sets no title: all control characters but new lines and own colours show.

    Events, reasons and names are written by others, who may be anybody in the namespace (kubectl's CVE-2021-25743).
    """
    return _CONTROL.sub(lambda match: match[1] or _shown(match[2]), text)


def one_line(text: str) -> str:
    """Return a text of others in one line: a second line would look like a row or a message of tfk8s."""
    return without_colours(text).replace("\n", " ")


def without_colours(text: str) -> str:
    """Return a text of others with its escape characters shown: `visible` lets their colours pass as own ones."""
    return text.replace("\x1b", "^[")


def _shown(character: str) -> str:
    """Return a control character as kubectl and terminals show it, or as JSON writes it."""
    code = ord(character)
    return f"^{chr(code ^ 64)}" if code < 32 else f"\\u{code:04x}"


def can_ask() -> bool:
    """Return whether a user sits at this terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> bool:
    """Ask a question on standard error; return whether the answer is yes."""
    print(f"{visible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def document(value: object) -> None:
    """Print a JSON document."""
    import json

    say(json.dumps(value, indent=2, ensure_ascii=False))


def line(value: object) -> None:
    """Print a JSON document on one line, for a stream of documents."""
    import json

    say(json.dumps(value, ensure_ascii=False))


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], stream: TextIO | None = None, optional: Sequence[str] = ()
) -> str:
    """Return an aligned table with a head.

    Args:
        head: the names of the columns.
        rows: their cells; a new line in a cell becomes a space.
        stream: the table has colours if `stream` shows colours.
        optional: columns to leave out if all their cells are empty.
    """
    columns = (column for column in zip(head, *rows, strict=True) if column[0] not in optional or any(column[1:]))
    names, *kept = zip(*columns, strict=True)
    cells = ([one_line(cell) for cell in row] for row in kept)
    lines = [list(names), *([cell or "-" for cell in row[:-1]] + [row[-1]] for row in cells)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    if stream is not None:
        padded = [[paint(cell, _COLOURS.get(cell.strip(), ""), stream) for cell in line] for line in padded]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def paint(text: str, code: str, stream: TextIO) -> str:
    """Return text in a colour if the stream is a terminal that shows colours."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and has_colours(stream) else text


def prefix_colour(number: int) -> str:
    """Return the colour of the task with this number."""
    return _PREFIXES[number % len(_PREFIXES)]


def has_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal and the user allows colours (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def age(since: float | None) -> str:
    """Return the time since a moment: `5m12s`."""
    if since is None:
        return ""
    from tfk8s.core.progress import duration

    return duration(max(0.0, time.time() - since))


def moment(since: float | None) -> str | None:
    """Return a time for JSON documents (RFC 3339, UTC)."""
    if since is None:
        return None
    import datetime

    return datetime.datetime.fromtimestamp(since, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def memory(size: int) -> str:
    """Return a number of bytes: `256Mi`."""
    value = float(size)
    for unit in ("", "Ki", "Mi", "Gi"):
        if value < 1024:
            return f"{value:.4g}{unit}"
        value /= 1024
    return f"{value:.4g}Ti"
