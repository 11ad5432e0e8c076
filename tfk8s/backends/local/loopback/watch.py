"""The watch over a cluster's ports in this machine's own network: no port stays open to other machines."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable

from tfk8s.backends.local.loopback import sockets
from tfk8s.backends.local.loopback.sockets import Listener
from tfk8s.backends.local.loopback.start import listening
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.task import activity

_INTERVAL = 0.1
_SEARCH_SECONDS = 5.0  # for the owner of a socket, which may be on its way from one process to another
PIDFD_GETFD = 438  # a system call, with the same number on all architectures

_libc = ctypes.CDLL(None, use_errno=True)


class PortWatch:
    """Finds open ports of a cluster's processes, and binds them to the loopback device.

    Processes of Python bind their ports by themselves (`start`), and other processes don't. A process whose port can't
    be bound, or got a connection from another machine, ends.

    Args:
        processes: returns the processes of the cluster.
    """

    def __init__(self, loop: Loop, processes: Callable[[], Iterable[int]]) -> None:
        self._loop, self._processes = loop, processes
        self._foreign: dict[
            int, float
        ] = {}  # open sockets that no process of the cluster has: when each was first seen

    def start(self) -> None:
        """Start to poll. What listens already belongs to other programs."""
        self._foreign = dict.fromkeys((item.inode for item in _open_listeners()), -math.inf)
        self._look()

    def _look(self) -> None:
        self._loop.after(_INTERVAL, self._look)
        found = {item.inode: item for item in _open_listeners()}
        now = time.monotonic()
        self._foreign = {inode: self._foreign.get(inode, now) for inode in found}
        unknown = {inode: item for inode, item in found.items() if now - self._foreign[inode] < _SEARCH_SECONDS}
        if not unknown:
            return
        for pid in self._processes():
            for descriptor, inode in sockets.descriptors(pid):
                if listener := unknown.pop(inode, None):
                    _confine(pid, descriptor, listener)


def _open_listeners() -> list[Listener]:
    """Return the sockets of this user, or for root of all users, on which other machines may connect."""
    return [item for item in sockets.listeners() if item.is_open and os.geteuid() in (0, item.user)]


def _confine(pid: int, descriptor: int, listener: Listener) -> None:
    """Bind a port of a process to the loopback device; end the process if others may have used the port."""
    try:
        _bind(pid, descriptor)
        trouble = ""
    except OSError as error:
        trouble = f"port {listener.port} is open to other machines, and can't be bound to loopback: {error.strerror}"
    if peers := sockets.outside_peers(activity.read_tables(), {listener.port}):
        trouble = f"port {listener.port} was open to other machines, and {peers[0]} connected"
    if trouble:
        _end(pid, trouble)


def _bind(pid: int, descriptor: int) -> None:
    """Bind a socket of another process, which the kernel allows to its debuggers (pidfd_getfd(2))."""
    process = os.pidfd_open(pid)
    try:
        own = _libc.syscall(PIDFD_GETFD, process, descriptor, 0)
        if own < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        with socket.socket(fileno=own):
            listening.bind(own)
    finally:
        os.close(process)


def _end(pid: int, trouble: str) -> None:
    """Kill a process, with a line where its errors go."""
    line = f"tfk8s: process {pid} ends: {trouble}; listen on 127.0.0.1\n"
    with contextlib.ExitStack() as stack:
        stack.callback(_kill, pid)
        with contextlib.suppress(OSError):  # nobody reads there
            errors = os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
            stack.callback(os.close, errors)
            os.write(errors, line.encode())


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
