"""Lines of the history's files: a kill may tear the last one, and a reader takes no more than a limit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # Windows has none


def append(path: Path, line: bytes) -> None:
    """Append a line to a file, whose last line may be torn."""
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_LINK, 0o600), "r+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
        is_torn = bool(end) and file.read(1) != b"\n"
        file.write(b"\n" * is_torn + line + b"\n")


def to_line(plain: object) -> bytes:
    """Return an object as JSON on one line. Half characters, which names of files may have, become question marks."""
    return json.dumps(plain, ensure_ascii=False).encode(errors="replace")


def tail(path: Path, size: int) -> bytes:
    """Return the last whole lines of a file."""
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - size)
        file.seek(start)
        content = file.read(size)
    return content.partition(b"\n")[2] if start else content


def read(path: Path, limit: int) -> Iterator[str]:
    """Yield the lines of a file, of at most `limit` bytes; none of a file that is missing or damaged."""
    import gzip

    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as file:
                content = file.read(limit)
        else:
            content = tail(path, limit)
    except (OSError, EOFError, ValueError):
        return
    yield from content.decode(errors="replace").splitlines()
