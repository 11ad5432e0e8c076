"""The lines of a text that comes in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MAX_LINE = 1 << 22  # bytes; etcd takes no object of more than 1.5 MiB (etcd.io/docs, "System limits")


def split(chunks: Iterable[bytes], limit: int = MAX_LINE) -> Iterator[bytes]:
    """Yield each line without its end. A line of more than `limit` bytes comes in several parts."""
    line = bytearray()
    for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield bytes(line + end)
            line.clear()
        line += rest
        if len(line) > limit:
            yield bytes(line)
            line.clear()
    if line:
        yield bytes(line)
