"""The lease of a local cluster: the cluster is removed when no `tfk8s run` holds a connection to its supervisor.

The kernel closes the connection of a process that ends, SIGKILL included.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from tfk8s.backends.local import state
from tfk8s.backends.local.supervision import history
from tfk8s.sessions.forks.event_loop import Loop

_RUN_IS_GONE = "because its `run` is gone (lease)"


class RunLease:
    """The connections of those that hold the lease. Without a first one, the cluster has no lease.

    Args:
        end: called with the reason, when the last holder has gone.
    """

    def __init__(self, loop: Loop, end: Callable[[str], None]) -> None:
        self._loop, self._end = loop, end
        self._holders: set[socket.socket] = set()
        self.has_run_out = False

    @property
    def holders(self) -> int:
        """The number of those who hold the lease."""
        return len(self._holders)

    def hold(self, connection: socket.socket) -> bool:
        """Keep a connection, whose end ends the lease unless others hold the lease; return True."""
        self._holders.add(connection)
        self._loop.on_readable(connection, lambda: self._read(connection))
        return True

    def cancel(self) -> None:
        """End the lease, so that the cluster stays."""
        for connection in list(self._holders):
            self._release(connection)

    def _read(self, connection: socket.socket) -> None:
        try:
            is_open = bool(connection.recv(64))  # a holder has nothing to say
        except OSError:
            is_open = False
        if is_open:
            return
        self._release(connection)
        if not self._holders:
            self.has_run_out = True
            self._end(_RUN_IS_GONE)

    def _release(self, connection: socket.socket) -> None:
        self._holders.discard(connection)
        self._loop.forget(connection)
        connection.close()


def remove(folder: state.Folder) -> None:
    """Remove the folder of a cluster whose processes have ended, unless another command has taken the folder over."""
    with state.locked():
        if folder.supervisor() == os.getpid():
            history.remove(folder)
