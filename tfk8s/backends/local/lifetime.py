"""The limits of a local cluster: its supervisor ends the cluster at `max_duration` and `idle`, or suspends it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable

from tfk8s.backends.local.loopback import sockets
from tfk8s.backends.local.state import Folder
from tfk8s.core.lifetime import Limits
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.task import activity

_FOLDER_INTERVAL = 2.0  # between two looks at the cluster's folder
_LOOK_INTERVAL = 1.0  # the supervisor sees scripts and connections that last as long


class LocalLifetime:
    """Calls back at the limits of a cluster.

    Args:
        limits: the cluster's.
        created: the time of the cluster's first `up`, in seconds since the epoch. A clock that is set later changes
            nothing: from now on, the seconds are counted, with those of a machine that sleeps.
        is_used: returns whether a session or a script uses the cluster now.
        end: called once, with the reason.
        suspend: called when `idle` suspends the cluster, with the seconds without use; returns whether that happens.
    """

    def __init__(
        self, loop: Loop, limits: Limits, created: float, is_used: Callable[[], bool], end: Callable[[str], None],
        suspend: Callable[[float], bool],
    ) -> None:  # fmt: skip
        self._loop, self._limits, self._suspend = loop, limits, suspend
        self._begin = _uptime() - max(0.0, time.time() - created)
        self._is_used, self._end = is_used, end
        self._quiet_since = time.monotonic()

    def start(self) -> None:
        """Start to poll."""
        if any(self._limits):
            self._look()

    @property
    def idle_since(self) -> float | None:
        """The end of the last session and script, in seconds since the epoch; None without the limit `idle`."""
        return time.time() - self._quiet if self._limits.watch_use else None

    def note_use(self) -> None:
        """Note that a session or a script begins, which may end before the next poll."""
        self._quiet_since = time.monotonic()

    @property
    def _quiet(self) -> float:
        """The seconds without a session and a script."""
        return time.monotonic() - self._quiet_since

    def _look(self) -> None:
        if self._limits.watch_use and self._seems_used():
            self.note_use()
        age, quiet = _uptime() - self._begin, self._quiet
        if reason := self._limits.why_over(age, quiet):
            self._end(reason)
            return
        if self._limits.is_sleep_due(quiet) and self._suspend(self._limits.suspend or 0.0):
            return
        wait = self._limits.seconds_to_wait(age, quiet)
        self._loop.after(min(wait, _LOOK_INTERVAL) if self._limits.watch_use else wait, self._look)

    def _seems_used(self) -> bool:
        try:
            return self._is_used()
        except OSError:  # for a moment, such as without a free descriptor
            return True


def watch_folder(loop: Loop, folder: Folder, end: Callable[[str], None]) -> None:
    """End a cluster whose folder somebody has removed or damaged: no command finds that cluster."""
    try:
        is_own = folder.supervisor() == os.getpid()
    except OSError:  # for a moment, such as without a free descriptor
        is_own = True
    if is_own:
        loop.after(_FOLDER_INTERVAL, lambda: watch_folder(loop, folder, end))
    else:
        end("because its folder was removed or damaged")


def _uptime() -> float:
    """Return the seconds since the machine started (clock_gettime(2))."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class OutsideConnections:
    """Separates the connections of scripts and forwards to tasks' servers from those of the tasks."""

    def __init__(self) -> None:
        self._sockets_of_tasks: set[int] = set()

    def exist(self, tables: str, ports: Collection[int], pids: Iterable[int]) -> bool:
        """Return whether a process that is no task is connected to a task's server.

        Args:
            tables: the connections in the cluster's network, from `activity.read_tables`.
            ports: the ports of the tasks' servers.
            pids: the tasks' processes.
        """
        items = list(activity.connections(tables))
        inodes = {item[:4]: item.inode for item in items}
        served = [item for item in items if item.port in ports]
        # The other end is not in the tables if another machine has it, which only exposed ports allow.
        clients = {inodes.get((item.peer_host, item.peer_port, item.host, item.port), 0) for item in served}
        if clients - self._sockets_of_tasks:
            self._sockets_of_tasks = {inode for pid in pids for _, inode in sockets.descriptors(pid)}
        return bool(clients - self._sockets_of_tasks)
