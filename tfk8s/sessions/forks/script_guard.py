"""Ends a script some time after Ctrl-C, whatever its threads, its libraries and TensorFlow wait for.

Python waits for each thread of a script at its end, and a thread in a call of TensorFlow may wait for ever. SIGTERM
ends no script either that has a handler, as TensorFlow's may be. Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from tfk8s.core.programs import INTERRUPTED
from tfk8s.errors import listed
from tfk8s.sessions.call_guard import CallGuard, ends_calls


class ScriptGuard(CallGuard):
    """The rule for calls of a script, and for the script itself after Ctrl-C.

    A script with a handler of its own for SIGINT ends when it likes.

    Args:
        exit_process: ends this process with an exit code.
        *arguments, **keywords: as for `CallGuard`.
    """

    def __init__(self, exit_process: Callable[[int], NoReturn], *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._exit = exit_process
        self._interrupted_at: float | None = None
        self._is_told = self._is_terminated = False

    @property
    def check_interval(self) -> float | None:
        """The seconds until the next `check`; None while nothing has to be checked."""
        return super().check_interval if self._interrupted_at is None else self._timing.check_interval

    def on_interrupt(self) -> None:
        """Begin to wait for the end of the script; end the script at the second Ctrl-C."""
        super().on_interrupt()
        if not ends_calls(signal.getsignal(signal.SIGINT)):
            return
        if self._interrupted_at is not None:
            self._end()
        self._interrupted_at = self._clock()

    def check(self, now: float) -> None:
        """End the calls and the script whose time is up."""
        super().check(now)
        if self._interrupted_at is None:
            return
        waited = now - self._interrupted_at
        if waited >= self._timing.end_notice and not (self._interrupted or self._is_told):
            self._is_told = True
            left = self._timing.end_timeout - waited
            self._notify(f"waiting for {_threads()} to end; Ctrl-C again ends it at once, else it ends in {left:.0f} s")
        if waited >= self._timing.end_timeout and not self._is_terminated:
            self._is_terminated = True
            if callable(signal.getsignal(signal.SIGTERM)):  # the script may save something
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                self._end()
        if waited >= self._timing.end_timeout + self._timing.term_timeout:
            self._end()

    def _end(self) -> NoReturn:
        """End the process, even if it can't free what it has made on tasks."""
        timer = threading.Timer(self._timing.close_timeout, os._exit, [INTERRUPTED])
        timer.daemon = True
        timer.start()
        self._exit(INTERRUPTED)


def _threads() -> str:
    """Return the threads that Python waits for at the end of the script."""
    names = [
        f'"{thread.name}"'
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    if not names:
        return "the script"
    return f"the script's thread{'s' * (len(names) > 1)} {listed(names, 3)}"
