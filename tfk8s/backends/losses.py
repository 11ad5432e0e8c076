"""Notices servers that go away, for scripts that would wait for them for ever."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import socket
import threading
from collections.abc import Sequence
from types import TracebackType

from tfk8s import devices
from tfk8s.backends import Backend
from tfk8s.errors import TaskUnreachable
from tfk8s.spec import Task


class Losses:
    """Holds a connection to each server of a cluster, in a `with`: it ends at once when the server does.

    Attributes:
        news: a descriptor to read from, with a line of JSON for each task that was lost, as the runner reads them.
    """

    def __init__(self, backend: Backend, name: str, tasks: Sequence[Task]) -> None:
        self._backend, self._name, self._tasks = backend, name, tasks
        self.news, self._told = os.pipe()
        self._stop, self._stopped = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._watch, name="tfk8s-losses", daemon=True)

    def __enter__(self) -> Losses:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._stopped)
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        for descriptor in (self.news, self._told, self._stop):
            os.close(descriptor)

    def _watch(self) -> None:
        self._selector.register(self._stop, selectors.EVENT_READ)
        for task in self._tasks:
            if select.select([self._stop], [], [], 0)[0]:
                return
            self._hold(task)
        while True:
            for key, _ in self._selector.select():
                if not isinstance(key.fileobj, socket.socket):
                    return
                if not _goes_on(key.fileobj):
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self._ended(key.data)

    def _hold(self, task: Task) -> None:
        with contextlib.suppress(TaskUnreachable):  # the runner asks by itself before the script begins
            self._selector.register(self._backend.dial(self._name, task), selectors.EVENT_READ, task)

    def _ended(self, task: Task) -> None:
        """Find out what the end of a connection means: a server also ends those on which nothing is said for long."""
        (answer,) = devices.ask_each(self._backend, self._name, [task])
        if answer.error:
            os.write(self._told, json.dumps({"task": str(task), "reason": answer.reason}).encode() + b"\n")
        else:
            self._hold(task)


def _goes_on(stream: socket.socket) -> bool:
    try:
        return bool(stream.recv(1 << 16))
    except OSError:
        return False
