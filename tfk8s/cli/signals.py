"""What signals do to a command."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import NoReturn

from tfk8s.cli.output import note

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_IMPORTS = "<frozen importlib._bootstrap>"
_AGAIN_SECONDS = 0.01

_first: int | None = None  # signal that came


def prepare() -> None:
    """Have signals end this process as exceptions do, so that what is open is closed; ignored ones stay ignored."""
    global _first
    _first = None
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _came)


def exit_code() -> int | None:
    """Return what to exit with because of a signal; None where none came.

    C code that calls Python back may have made another exception of the signal's, or none.
    """
    return None if _first is None else 128 + _first


@contextlib.contextmanager
def leaving(what: str) -> Iterator[None]:
    """In a `with`, say what a signal that ends this process leaves behind, and what to do then."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if _first is not None:
            with contextlib.suppress(OSError):  # the terminal is gone
                note(f"interrupted: {what}")
        raise


class Once:
    """In a `with`, the first signal that ends programs raises an exception, and every later one does nothing.

    So that clearing up, which the first one starts, is not cut short.
    """

    def __init__(self) -> None:
        self._held = False

    def hold(self) -> None:
        """From here on, not even a first signal does anything."""
        self._held = True

    def check(self) -> None:
        """Raise the exception of a signal that came: the first one may have been lost in C code."""
        if _first is not None and not self._held:
            _raise(_first)

    def __enter__(self) -> Once:
        wanted = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._came) for number in wanted}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if _first is None and not self._held:
            _came(number, frame)


def _came(number: int, frame: FrameType | None) -> None:
    global _first
    if _is_deaf(frame):
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        return
    _first = number
    _raise(number)


def _is_deaf(frame: FrameType | None) -> bool:
    """Return whether Python drops exceptions there: in destructors, and as an import lets go of its module's lock."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or (code.co_name == "cb" and code.co_filename == _IMPORTS):
            return True
        frame = frame.f_back
    return False


def _raise(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
