"""Notices servers that go away, for scripts that would wait for them for ever.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType

from tfk8s import probe
from tfk8s.errors import TaskUnreachable, Tfk8sError

Dial = Callable[[], socket.socket]

_ANSWER_SECONDS = 2.0
_AGAIN_SECONDS = 1.0
# Of a machine or a network that is gone, a connection tells after 3 + 2 × 2 seconds.
_KEEPALIVE = {"TCP_KEEPIDLE": 3, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 2}


def connect(task: str, address: str) -> socket.socket:
    """Return a connection to a task's server.

    Raises:
        TaskUnreachable: there is none; says why.
    """
    host, _, port = address.rpartition(":")
    try:
        return socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS)
    except TimeoutError as error:
        raise TaskUnreachable(f"{task} does not answer at {address}: no connection in time") from error
    except OSError as error:
        raise TaskUnreachable(f"{task} does not answer at {address}: {error.strerror or error}") from error


class Losses:
    """Holds a connection to each server of a cluster, in a `with` or from `start` on: it ends when the server does.

    Holding costs nothing, where asking again and again would take its time from the script.

    Args:
        dials: how to connect to each task, by its name as users read it.

    Attributes:
        news: a descriptor to read from, with a line of JSON for each task that was lost, as the runner reads them.
    """

    def __init__(self, dials: Mapping[str, Dial]) -> None:
        self._dials = dials
        self.news, self._told = os.pipe()
        self._stop, self._stopped = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stop, selectors.EVENT_READ)
        self._known: dict[str, int] = {}  # the incarnation that each task had last
        self._lost: set[str] = set()  # those that were told of and are not back
        self._away: deque[str] = deque()  # those that no connection is held to
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tfk8s-losses", daemon=True)

    def start(self) -> None:
        """Begin, for as long as this process lives."""
        self._thread.start()

    def __enter__(self) -> Losses:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        os.close(self._stopped)
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        for descriptor in (self.news, self._told, self._stop):
            os.close(descriptor)

    def _watch(self) -> None:
        for task in self._dials:
            if not self._over.is_set():
                self._look(task)
        while not self._over.is_set():
            ready = self._selector.select(_AGAIN_SECONDS if self._away else None)
            if not ready:
                self._look(self._away.popleft())
            for key, _ in ready:
                if isinstance(key.fileobj, socket.socket) and not _goes_on(key.fileobj):
                    # A server may also end a connection on which nothing is said for long.
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self._look(key.data)

    def _look(self, task: str) -> None:
        """Connect to a task, and tell if it is not what it was."""
        try:
            stream, incarnation = _hold(task, self._dials[task])
        except TaskUnreachable as error:
            self._away.append(task)
            if task in self._known and task not in self._lost:
                self._lost.add(task)
                self._tell(task, str(error).removeprefix(f"{task} "))
            return
        except Tfk8sError:  # the way to all tasks is broken, which says nothing of this one
            self._away.append(task)
            return
        if self._known.get(task, incarnation) != incarnation and task not in self._lost:
            self._tell(task, "its server was started anew")
        self._known[task] = incarnation
        self._lost.discard(task)
        self._selector.register(stream, selectors.EVENT_READ, task)

    def _tell(self, task: str, reason: str) -> None:
        os.write(self._told, json.dumps({"task": task, "reason": reason}).encode() + b"\n")


def _hold(task: str, dial: Dial) -> tuple[socket.socket, int]:
    """Return a connection to a task's server, and its incarnation.

    Raises:
        TaskUnreachable: the server does not answer.
        Tfk8sError: the way to it is broken.
    """
    stream = dial()
    try:
        devices = probe.get_status(stream, _ANSWER_SECONDS)
        _keep_alive(stream)
    except (OSError, probe.ProbeError) as error:
        stream.close()
        why = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        raise TaskUnreachable(f"{task} does not answer: {why}") from error
    return stream, devices[0].incarnation if devices else 0


def _keep_alive(stream: socket.socket) -> None:
    stream.settimeout(_ANSWER_SECONDS)
    with contextlib.suppress(OSError):  # not TCP
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):  # macOS lacks the first
                stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _goes_on(stream: socket.socket) -> bool:
    try:
        return bool(stream.recv(1 << 16))
    except OSError:
        return False
