"""Sends files of a container to standard output, or unpacks what comes from standard input. This file runs in pods."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tfk8s import polling
from tfk8s.core.script import Download
from tfk8s.errors import Tfk8sError
from tfk8s.task.files import packed, received

COMMAND = ("python3", "-m", "tfk8s.task.files.copy")
SEND, RECEIVE = "send", "receive"
_BLOCK = 1 << 16
_QUIET = 1.0  # seconds after which nothing more is sent


def main(arguments: Sequence[str]) -> int:
    """Send a file or a folder, or receive it at a path; return 0, or 1 after saying what was not copied.

    Args:
        arguments: `SEND` and a path, or `RECEIVE`, a name, and the path.
    """
    verb, *names, path = arguments
    if verb == SEND:
        with contextlib.suppress(BrokenPipeError):  # the other side has given up
            packed.pack([path], sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return 0
    try:
        problems = received.receive(sys.stdin.buffer, [Download(names[0], Path(path))])
    except Tfk8sError as error:
        problems = [str(error)]
    sys.stderr.write("; ".join(problems))
    sys.stderr.flush()
    while problems and polling.ready({sys.stdin.fileno()}, _QUIET) and os.read(sys.stdin.fileno(), _BLOCK):
        pass  # else the stream would break before the problems arrive
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
