"""The files that a program leaves: process 1 of its pod waits until `tfk8s run --get` has copied them.

Process 1 forks programs, so it has one thread. A process beside it, `file_link`, serves the stream.
Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Collection, Mapping

from tfk8s.core import naming
from tfk8s.task import ipc

_STEP = 1.0


class LeftFiles:
    """The link to the process that sends the files.

    Args:
        connection: to the process; None if nobody copies files.
    """

    def __init__(self, connection: socket.socket | None) -> None:
        self._connection = connection

    def send(self, code: int, signals: Collection[int]) -> None:
        """Tell how the program has ended, and wait until its files are copied, or until SIGTERM.

        Args:
            code: the exit code.
            signals: those of process 1, which are blocked; SIGCHLD and SIGTERM are among them.
        """
        if self._connection is None:
            return
        with contextlib.suppress(OSError), self._connection:  # the process is gone
            ipc.send(self._connection, {"exit": code})
            self._connection.setblocking(False)
            while not self._is_over(self._connection):
                number = signal.sigtimedwait(signals, _STEP)
                if number and number.si_signo == signal.SIGTERM:
                    return

    @staticmethod
    def _is_over(connection: socket.socket) -> bool:
        try:
            return not connection.recv(1)
        except BlockingIOError:
            return False


def start(environment: Mapping[str, str]) -> LeftFiles:
    """Start the process that sends the files, if the variables of the pod name files of this task."""
    wanted = json.loads(environment.get(naming.FILES_VARIABLE, "{}"))
    if not (paths := wanted.get(environment["TFK8S_INDEX"])):
        return LeftFiles(None)
    own, other = socket.socketpair()
    with other:
        other.set_inheritable(True)
        words = (sys.executable, "-P", "-m", "tfk8s.task.stream.file_link", str(other.fileno()), *paths)
        try:
            os.posix_spawn(sys.executable, words, environment, setsigmask=())
        except OSError as error:
            sys.stderr.write(f"tfk8s: the program's files can't be copied: {error.strerror}\n")
            own.close()
            return LeftFiles(None)
    return LeftFiles(own)
