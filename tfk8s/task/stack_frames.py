"""The frames of this process' threads. Standard library only: this file also runs in pods."""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections.abc import Iterator

_LOCK = threading.Lock()


def current_frames() -> dict[int, types.FrameType]:
    """Return the innermost frame of each thread.

    In CPython 3.11, `sys._current_frames` waits for ever if it collects garbage with a `threading.local`:
    https://github.com/python/cpython/issues/106883. So nothing is collected meanwhile.
    """
    with _LOCK:  # else another thread could turn the collection on again
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


def stack_of(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """Yield the frames of a stack, from the innermost outwards."""
    while frame is not None:
        yield frame
        frame = frame.f_back
