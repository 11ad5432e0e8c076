"""A child process that belongs to the command that runs in this process."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping, Sequence

from tfk8s import platforms


def start(
    command: Sequence[str], environment: Mapping[str, str], what: str = "processes that serve a page"
) -> subprocess.Popen[bytes]:
    """Start a process that writes where this process writes, reads nothing, and ends with this process.

    Args:
        command: the program and its arguments.
        environment: its whole environment.
        what: the use of the process, for the error.

    Raises:
        InvalidInput: this system is not Linux.
    """
    platforms.require_linux(what)
    from tfk8s.sessions.forks import processes

    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True,  # away from Ctrl-C
        preexec_fn=functools.partial(processes.die_with_parent, os.getpid()),
    )  # fmt: skip


def stop(process: subprocess.Popen[bytes], timeout: float) -> None:
    """End a process; kill it if it has not ended after `timeout` seconds."""
    process.terminate()
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
