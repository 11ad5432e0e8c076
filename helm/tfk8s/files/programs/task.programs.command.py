"""Becomes the command of a program. Standard library only: this file runs in pods."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as a shell has them


def become(words: Sequence[str]) -> NoReturn:
    """Replace this process by a command; end the process with one line if the command can't run."""
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
        os.execvp(words[0], list(words))
    except OSError as error:
        if error.errno == errno.E2BIG:
            size = len(os.environ["TF_CONFIG"])
            reason = f"TF_CONFIG has {size} bytes, and the kernel allows a command 131071: run a Python file instead"
        else:
            reason = error.strerror or str(error)
        print(f"tfk8s: {words[0]} can't run: {reason}", file=sys.stderr, flush=True)
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
