"""Splits the bytes of an HTTP/2 connection into frames, and passes long frames on in parts. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tfk8s.task import wire


class Head(NamedTuple):
    """The head of a frame.

    Attributes:
        size, kind, flags, stream: as `wire.parse_head` returns them.
    """

    size: int
    kind: int
    flags: int
    stream: int

    @property
    def opens_block(self) -> bool:
        """True if only frames with more headers may follow (RFC 9113, 6.10)."""
        return self.kind in (wire.HEADERS, wire.CONTINUATION) and not self.flags & wire.END_HEADERS


class FrameSplitter:
    """Splits a stream of bytes into the parts of its frames.

    Args:
        is_whole: whether the payload of a frame has to be in one part.
        preface: how many bytes come before the frames.

    Attributes:
        is_start: whether the part that came last begins its frame.
    """

    def __init__(self, is_whole: Callable[[Head], bool], preface: int = 0) -> None:
        self._is_whole, self._preface, self._held = is_whole, preface, b""
        self._head: Head | None = None  # of the latest frame
        self._rest = 0
        self.is_start = False

    @property
    def is_inside(self) -> bool:
        """True if the bytes that were passed on end where no other frame may begin."""
        return self._rest > 0 or (self._head is not None and self._head.opens_block)

    def whole(self, data: memoryview) -> list[tuple[Head, memoryview]] | None:
        """Return the frames that begin in the next bytes; None if `parts` would hold bytes back.

        Args:
            data: the next bytes, which `skip` or `parts` takes then.
        """
        if self._preface or self._held:
            return None
        position, found = self._rest, []
        while position < len(data):
            start = position + wire.HEAD_SIZE
            if start > len(data):
                return None
            head = Head(*wire.parse_head(data[position:start]))
            position = start + head.size
            if position > len(data) and self._is_whole(head):
                return None
            found.append((head, data[start:position]))
        return found

    def skip(self, data: memoryview, frames: Sequence[tuple[Head, memoryview]]) -> None:
        """Take the next bytes as a whole.

        Args:
            data: the bytes.
            frames: as `whole` returned them.
        """
        self._rest = max(0, self._rest - len(data))
        if frames:
            self._head, part = frames[-1]
            self._rest = self._head.size - len(part)

    def parts(self, data: memoryview) -> Iterator[tuple[Head | None, memoryview, bool]]:
        """Yield the head of a frame, a part of its payload, and whether the frame ends there.

        Bytes of an incomplete head are held back until the rest comes, and so is the whole payload of some frames.

        Args:
            data: the next bytes.

        Raises:
            ProbeError: such a frame is longer than HTTP/2 allows.
        """
        if self._preface:
            count = min(self._preface, len(data))
            self._preface -= count
            yield None, data[:count], False
            data = data[count:]
        if self._held:
            data, self._held = memoryview(self._held + bytes(data)), b""
        while data:
            self.is_start = not self._rest
            if self.is_start:
                head = Head(*wire.parse_head(data)) if len(data) >= wire.HEAD_SIZE else None
                is_whole = head is not None and self._is_whole(head)
                if head is not None and is_whole and head.size > wire.MAX_FRAME:
                    raise wire.ProbeError("a frame is longer than HTTP/2 allows")
                if head is None or (is_whole and len(data) < wire.HEAD_SIZE + head.size):
                    self._held = bytes(data)
                    return
                self._head, self._rest = head, head.size
                data = data[wire.HEAD_SIZE :]
            part, data = data[: self._rest], data[self._rest :]
            self._rest -= len(part)
            yield self._head, part, not self._rest
