"""Lines of the history's files: a kill may tear the last one, and a reader takes no more than a limit."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path

from tfk8s.backends.own_folder import open_file, read_file
from tfk8s.task.files import line_file


def append(path: Path, line: bytes) -> None:
    """Append a line to a file, whose last line may be torn."""
    line_file.append(open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), line)


def tail(path: Path, size: int) -> bytes:
    """Return the last whole lines of a file; errors as `open_file`."""
    with open(open_file(path), "rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - size)
        file.seek(start)
        content = file.read(size)
    return content.partition(b"\n")[2] if start else content


def read(path: Path, limit: int) -> Iterator[str]:
    """Yield the lines of a file, of at most `limit` bytes; none of a file that is missing; errors as `unpack`."""
    try:
        content = unpack(path, limit) if path.suffix == ".gz" else tail(path, limit)
    except FileNotFoundError:
        return
    *lines, rest = content.decode(errors="replace").split("\n")
    yield from lines if not rest else [*lines, rest]


def unpack(path: Path, limit: int) -> bytes:
    """Return the first `limit` bytes of what a file has compressed.

    Raises:
        OSError: the file is missing or damaged, or is no regular file of this user.
    """
    import gzip
    import zlib

    packed = read_file(path, 2 * limit)
    try:
        with gzip.open(io.BytesIO(packed)) as file:
            return file.read(limit)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise OSError(errno.EIO, f"{path} is damaged: remove it") from error
