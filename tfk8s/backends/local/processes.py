"""Starting processes that die with the one that starts them."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from tfk8s.backends.local import network_namespace

_ENDING = (signal.SIGINT, signal.SIGTERM)


def take_descriptors(descriptors: Sequence[int]) -> None:
    """Make the given descriptors this process' 0, 1, 2, …, and close all others."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64) for descriptor in descriptors]
    for number, descriptor in enumerate(high):
        os.dup2(descriptor, number)
    os.closerange(len(high), os.sysconf("SC_OPEN_MAX"))


def fork() -> int:
    """Fork; a SIGINT or SIGTERM for the new process waits until its `reset_signals`, and is not lost before that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def reset_signals() -> None:
    """Undo what the supervisor and the fork server set for themselves; a signal that waited ends this process."""
    signal.set_wakeup_fd(-1)
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def spawn(
    command: Sequence[str],
    descriptors: Sequence[int],
    environment: Mapping[str, str],
    folder: str | None = None,
    umask: int | None = None,
    new_session: bool = False,
) -> int:
    """Start a program that dies with this process; return its id.

    Args:
        command: the program's path and its arguments.
        descriptors: what it gets as 0, 1, 2, ….
        environment: all of it.
        folder: where it starts; default: here.
        umask: default: this process'.
        new_session: it leads a session, and so a process group, of its own.
    """
    parent = os.getpid()
    pid = fork()
    if pid:
        return pid
    try:
        network_namespace.die_with_parent(parent)
        if new_session:
            os.setsid()
        take_descriptors(descriptors)
        reset_signals()
        if folder is not None:
            os.chdir(folder)
        if umask is not None:
            os.umask(umask)
        os.execve(command[0], list(command), dict(environment))
    except BaseException as error:
        leave(f"error: can't start {command[0]}: {error}", 127)


def leave(message: str, code: int) -> NoReturn:
    """End this forked process with a message, without the clean-up that is its parent's to do."""
    print(message, file=sys.stderr, flush=True)
    os._exit(code)
