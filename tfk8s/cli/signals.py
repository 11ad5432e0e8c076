"""Signals that end a command."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from tfk8s import platforms
from tfk8s.cli.output import note
from tfk8s.errors import WaitTimeout

ENDING = platforms.ENDING_SIGNALS
_IMPORTS = "<frozen importlib._bootstrap>"
_RETRY_INTERVAL = 0.01

_first: int | None = None  # the first signal


def prepare() -> None:
    """Make signals raise exceptions, so that `finally` blocks run. Ignored signals stay ignored."""
    global _first
    _first = None
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _handle)


def exit_code() -> int | None:
    """Return the exit code for the first signal, or None without a signal.

    C code that calls Python may have replaced or dropped the signal's exception.
    """
    return None if _first is None else 128 + _first


@contextlib.contextmanager
def leaving(advice: str) -> Iterator[None]:
    """In a `with`, print advice if a signal ends this process, or if a wait reaches its limit."""
    try:
        yield
    except WaitTimeout as error:
        error.help = error.help or advice
        raise
    except (KeyboardInterrupt, SystemExit):
        if _first is not None:
            with contextlib.suppress(OSError):  # the terminal is gone
                note(f"interrupted: {advice}")
        raise


class Once:
    """In a `with`, only the first signal raises an exception. Later signals can't interrupt the cleanup."""

    def __init__(self) -> None:
        self._held = False

    def hold(self) -> None:
        """From now on, ignore the first signal too."""
        self._held = True

    def check(self) -> None:
        """Raise the exception of the first signal again, in case C code dropped it."""
        if _first is not None and not self._held:
            _raise(_first)

    def __enter__(self) -> Once:
        numbers = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if _first is None and not self._held:
            _handle(number, frame)


def _handle(number: int, frame: FrameType | None) -> None:
    global _first
    if _drops_exceptions(frame):
        platforms.raise_signal_later(number, _RETRY_INTERVAL)
        return
    _first = number
    _raise(number)


def _drops_exceptions(frame: FrameType | None) -> bool:
    """Return whether Python drops exceptions in a frame: in destructors, and when an import releases its lock."""
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
