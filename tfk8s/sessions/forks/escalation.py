"""Signals of a client's user, which its script gets. Standard library only: this file also runs in pods."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_SIGKILL = 9  # of Linux, where scripts run; Windows, where clients may run, does not name it

# The signals of a client's first, second, … Ctrl-C.
ESCALATION: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, _SIGKILL)


@contextlib.contextmanager
def forwarded_signals(send: Callable[[int], bool]) -> Iterator[None]:
    """In a `with`, forward SIGINT and SIGTERM to a script: the first as it is, the second as SIGTERM, then SIGKILL.

    The handler of before gets a later signal, and one that can't be sent. Only the main thread gets signals, so other
    threads forward none.

    Args:
        send: sends a signal; returns False if nothing can be sent.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    escalation = iter(ESCALATION)
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def forward(number: int, _: object) -> None:
        at_least = next(escalation, None)
        if at_least is None or not send(max(at_least, number, key=ESCALATION.index)):
            signal.signal(number, before[number])
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, forward)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def catches_sigterm(pid: int) -> bool:
    """Return whether a process has a handler of SIGTERM (proc(5), SigCgt)."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # the process has ended
        return False
    caught = next((line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> signal.SIGTERM - 1 & 1)
