"""Room for the frames of Python's calls. Standard library only: this file also runs in pods."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself would take a third of the time of `tfk8s --version`
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")

_WORDS = 33_000  # of 8 bytes: the frame needs 264 KB, gets a chunk of 512 KiB, and leaves the rest to the calls in it


def roomy(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, whose calls no longer map memory for their frames.

    CPython 3.11 to 3.13 keeps frames in chunks of 16 KiB (`push_chunk` in Python/pystate.c). A loop of calls at the end
    of a chunk maps another chunk for each call, and unmaps it: 9 µs in place of 0.1 µs. Where that is depends on all
    calls above. An import of TensorFlow 2.21 did so 16,000 times, a fourteenth of its time.
    """
    function.__code__ = function.__code__.replace(co_stacksize=_WORDS)
    return function
