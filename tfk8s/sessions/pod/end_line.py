"""The marks in the log of a script's pod: of lines of standard error, and of the script's end."""

from __future__ import annotations

from tfk8s.core import naming

MARK = naming.SCRIPT_MARK.encode()
END = MARK + MARK + b"tfk8s: exit code "


def end_line(code: int, note: str) -> bytes:
    """Return the text at the end of a script's streams."""
    return END + f"{code} {note}".encode()


def read_end(line: str) -> tuple[str, int, str] | None:
    """Return the text before the end in a stream's last line, the exit code, and the failure note; else None."""
    rest, end, result = line.rpartition(END.decode())
    code, _, note = result.partition(" ")
    return (rest, int(code), note) if end and code.isdecimal() else None
