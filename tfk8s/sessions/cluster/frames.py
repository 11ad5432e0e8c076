"""Splits the bytes of an HTTP/2 connection into frames, and passes long frames on in parts. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tfk8s.task import wire

PREFIX_SIZE = 5  # of a gRPC message: a flag for compression, and the size


class Head(NamedTuple):
    """The head of a frame in a block of bytes.

    Attributes:
        size, kind, flags, stream: as `wire.parse_head` returns them.
        start: the position of the payload in the block.
    """

    size: int
    kind: int
    flags: int
    stream: int
    start: int


class FrameSplitter:
    """Splits a stream of bytes into the parts of its frames.

    Args:
        preface: how many bytes come before the frames.

    Attributes:
        is_start: whether the part that came last begins its frame.
    """

    def __init__(self, preface: int = 0) -> None:
        self._preface, self._held = preface, b""
        self._head: bytes | None = None
        self._rest = 0
        self.is_start = False

    @property
    def is_inside(self) -> bool:
        """True in the middle of a frame that has been passed on in part."""
        return self._head is not None

    def heads(self, data: memoryview, is_whole: Callable[[int], bool]) -> list[Head] | None:
        """Return the frames that begin in the next bytes; None if `parts` would hold bytes back.

        Args:
            data: the next bytes, which `skip` or `parts` takes then.
            is_whole: as of `parts`.
        """
        if self._preface or self._held:
            return None
        position, found = self._rest, []
        while position < len(data):
            start = position + wire.HEAD_SIZE
            if start > len(data):
                return None
            head = Head(*wire.parse_head(data[position:start]), start)
            if start + (head.size if is_whole(head.kind) else min(head.size, PREFIX_SIZE)) > len(data):
                return None
            found.append(head)
            position = start + head.size
        return found

    def skip(self, data: memoryview, heads: Sequence[Head]) -> None:
        """Take the next bytes as a whole.

        Args:
            data: the bytes.
            heads: as `heads` returned them.
        """
        if heads:
            *_, last = heads
            self._head, self._rest = bytes(data[last.start - wire.HEAD_SIZE : last.start]), last.start + last.size
        self._rest -= len(data)
        if self._rest <= 0:
            self._head, self._rest = None, 0

    def parts(
        self, data: memoryview, is_whole: Callable[[int], bool]
    ) -> Iterator[tuple[bytes | None, memoryview, bool]]:
        """Yield the head of a frame, a part of its payload, and whether the frame ends there.

        Bytes of an incomplete head are held back until the rest comes, and so are short frames and the whole payload of
        some kinds.

        Args:
            data: the next bytes.
            is_whole: whether the payload of a kind of frame has to be in one part.
        """
        if self._preface:
            count = min(self._preface, len(data))
            self._preface -= count
            yield None, data[:count], False
            data = data[count:]
        if self._held:
            data, self._held = memoryview(self._held + bytes(data)), b""
        while data:
            if self._head is None:
                size, kind, *_ = wire.parse_head(data[: wire.HEAD_SIZE]) if len(data) >= wire.HEAD_SIZE else (0, 0)
                needed = wire.HEAD_SIZE + (size if is_whole(kind) else min(size, PREFIX_SIZE))
                if len(data) < needed:
                    self._held = bytes(data)
                    return
                self._head, self._rest, self.is_start = bytes(data[: wire.HEAD_SIZE]), size, True
                data = data[wire.HEAD_SIZE :]
            else:
                self.is_start = False
            part, data = data[: self._rest], data[self._rest :]
            self._rest -= len(part)
            head = self._head
            if not self._rest:
                self._head = None
            yield head, part, not self._rest
