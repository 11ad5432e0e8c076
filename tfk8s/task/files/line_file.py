"""Lines of a file whose writers may be killed. Standard library only: this file also runs in pods."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable


def append(descriptor: int, line: bytes) -> None:
    """Append a line to an open file, in one write, and close the file. The last line may be torn.

    Args:
        descriptor: of a file that was opened to read, write and append.
        line: without its end.

    Raises:
        OSError: the file can't be written.
    """
    with open(descriptor, "r+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
        is_torn = bool(end) and file.read(1) != b"\n"
        file.write(b"\n" * is_torn + line + b"\n")


def to_line(plain: object) -> bytes:
    """Return an object as JSON on one line. Half characters, which names of files may have, become question marks."""
    return json.dumps(plain, ensure_ascii=False).encode(errors="replace")


def tail(chunks: Iterable[bytes], size: int) -> bytes:
    """Return the last whole lines of what chunks have together, at most `size` bytes."""
    kept: deque[bytes] = deque()
    total = 0
    for chunk in chunks:
        kept.append(chunk)
        total += len(chunk)
        while total - len(kept[0]) > size:
            total -= len(kept.popleft())
    content = b"".join(kept)
    return content if total <= size else content[-size - 1 :].partition(b"\n")[2]
