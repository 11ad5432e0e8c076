"""The terminal of the user, for a command in a container that has a terminal. Windows has no such terminals."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def raw(resize: Callable[[int, int], None]) -> Iterator[int]:
    """In a `with`, the terminal passes each key on; yield a descriptor, readable when the terminal has another size.

    Args:
        resize: takes the columns and lines of the terminal.
    """
    before = termios.tcgetattr(0)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    handler = signal.signal(signal.SIGWINCH, lambda *_: os.write(writer, b"1"))
    try:
        tty.setraw(0)
        resize(*os.get_terminal_size(1))
        yield reader
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
        os.close(reader)
        os.close(writer)
