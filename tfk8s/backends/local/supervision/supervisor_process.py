"""The process of a supervisor: an interpreter that imports the supervisor, and then waits for its cluster.

A third of the time of `tfk8s up --local` would go into the imports of the command, and then those of the supervisor. So
the command line starts this process before its own imports, if the command may start a cluster.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tfk8s.backends import interpreter
from tfk8s.core.environment import without_proxy
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.sessions.forks import processes
from tfk8s.task import ipc


class SupervisorProcess:
    """A process that waits for its cluster for a minute. Until it has the cluster, it ends when its starter ends.

    Attributes:
        id: the id of the cluster, which is in the environment of the process.
    """

    def __init__(self, cluster_id: str, log: int = subprocess.DEVNULL) -> None:
        """Start the process, in a session of its own: Ctrl-C at a terminal reaches the command alone.

        Until the process has its session, signals wait.

        Args:
            cluster_id: the id of the cluster.
            log: the descriptor for the output until `supervise` gives another.

        Raises:
            OSError: the process can't start.
        """
        self.id, self._is_waiting = cluster_id, True
        environment = {**os.environ, **without_proxy(os.environ), CLUSTER_ID_VARIABLE: cluster_id}
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        self._connection, other = socket.socketpair()
        with contextlib.ExitStack() as on_error, other, processes.signals_blocked():
            on_error.enter_context(self._connection)
            self._process = subprocess.Popen(
                interpreter.command(sys.executable, "tfk8s.backends.local.supervise", str(other.fileno())),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=[other.fileno()],
                start_new_session=True,
            )  # fmt: skip
            on_error.pop_all()

    def supervise(self, folder: Path, log: int) -> socket.socket:
        """Have the process supervise a cluster.

        Args:
            folder: the folder of the cluster.
            log: the descriptor for the output of the supervisor.

        Returns:
            The connection for the answer. The connection is at its end if the process has ended.
        """
        self._is_waiting = False
        with contextlib.suppress(OSError):
            ipc.send(self._connection, {"folder": str(folder)}, [log])
        return self._connection

    def reap(self) -> None:
        """Wait until the supervisor has left its first process, a child of this one."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)

    def end_waiting(self) -> None:
        """End the process if it has no cluster."""
        if self._is_waiting:
            self._connection.close()
            self._process.kill()
            self._process.wait()


_early: SupervisorProcess | None = None  # of the command line


@contextlib.contextmanager
def started_early() -> Iterator[None]:
    """In a `with`, have a process for the cluster that this command may start."""
    global _early
    with contextlib.suppress(OSError):  # the start of the cluster tries again, and says what is missing
        _early = SupervisorProcess(secrets.token_hex(16))
    try:
        yield
    finally:
        if _early is not None:
            _early.end_waiting()
            _early = None


@contextlib.contextmanager
def waiting() -> Iterator[SupervisorProcess]:
    """In a `with`, give the process that was started early, or a new one. At the end, it has a cluster or ends.

    Raises:
        OSError: no process can start.
    """
    global _early
    process, _early = _early or SupervisorProcess(secrets.token_hex(16)), None
    try:
        yield process
    finally:
        process.end_waiting()
