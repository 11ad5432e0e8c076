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
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType

from tfk8s.core.addresses import host_and_port
from tfk8s.errors import TaskUnreachable, Tfk8sError
from tfk8s.task import probe, wire

Dial = Callable[[], socket.socket]
Explain = Callable[[str, str], str]  # a task, and what was seen of its loss → why it was lost; "" where it was not

_ANSWER_SECONDS = 2.0
_AGAIN_SECONDS = 1.0
_ASKED_A_SECOND = 500  # of many tasks, each is asked less often
SILENT = 2  # of these rounds without an answer are a loss, three times as many the end of the connection
SILENCE = "does not answer: its server is stopped, or its machine or the network is gone"
SILENT_FAR = 3  # where a connection leads through others, such as an API server


def connect(task: str, address: str) -> socket.socket:
    """Return a connection to a task's server.

    Raises:
        TaskUnreachable: there is none; says why.
    """
    try:
        return socket.create_connection(host_and_port(address), timeout=_ANSWER_SECONDS)
    except TimeoutError as error:
        raise TaskUnreachable(f"{task} does not answer at {address}: no connection in time") from error
    except OSError as error:
        raise TaskUnreachable(f"{task} does not answer at {address}: {error.strerror or error}") from error


class TaskMonitor:
    """Holds a connection to each server of a cluster, in a `with` or from `start` on: it ends when the server does.

    One that is stopped, or whose machine is gone, ends no connection. So each is asked for a sign of life every second,
    which its transport gives within 0.1 ms (`probe.ASK`), however busy its operations keep it.

    Args:
        dials: how to connect to each task, by its name as users read it.
        silent: after so many seconds without such a sign a task is lost.
        explain: knows more of a task that was lost, or that it is not.

    Attributes:
        news: a descriptor to read from, with a line of JSON for each task that was lost, {"task": …, "reason": …},
            and with an empty reason for one that answers again: as it was, or with "anew": true another one.
    """

    def __init__(
        self,
        dials: Mapping[str, Dial],
        silent: int = SILENT,
        explain: Explain = lambda task, reason: reason,  # noqa: ARG005 - it is called so
    ) -> None:
        self._dials, self._silent, self._explain = dials, silent, explain
        self.news, self._told = os.pipe()
        self._stop, self._stopped = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stop, selectors.EVENT_READ)
        self._known: dict[str, int] = {}  # the incarnation that each task had last
        self._lost: set[str] = set()  # those that were told of and are not back
        self._away: deque[str] = deque()  # those that no connection is held to
        self._unanswered: dict[str, int] = {}  # how often the others were asked in vain
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tfk8s-losses", daemon=True)

    def start(self) -> None:
        """Begin, for as long as this process lives."""
        self._thread.start()

    def __enter__(self) -> TaskMonitor:
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
        pause = max(_AGAIN_SECONDS, len(self._dials) / _ASKED_A_SECOND)
        due = time.monotonic() + pause
        while not self._over.is_set():
            for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
                if isinstance(key.fileobj, socket.socket):
                    self._hear(key.data, key.fileobj)
            if time.monotonic() >= due:  # after what came, however long this process was kept from looking
                self._ask_all()
                if self._away:
                    self._look(self._away.popleft())
                due = time.monotonic() + pause

    def _hear(self, task: str, stream: socket.socket) -> None:
        """Take what a server says, which is a sign of life, or nothing, which is the connection's end."""
        if not _goes_on(stream):
            # A server may also end a connection on which nothing is said for long.
            self._let_go(stream)
            self._look(task)
        elif self._unanswered.pop(task, 0) > self._silent and task in self._lost:
            self._lost.discard(task)
            self._tell(task, "")

    def _ask_all(self) -> None:
        """Ask for signs of life; tell of tasks that have given none for too long."""
        for key in list(self._selector.get_map().values()):
            if not isinstance(key.fileobj, socket.socket):
                continue
            task, stream = key.data, key.fileobj
            asked = self._unanswered[task] = self._unanswered.get(task, 0) + 1
            if asked == 1:
                with contextlib.suppress(OSError):  # it has ended, as the next look at it shows
                    stream.send(wire.HEARTBEAT)
            elif asked == self._silent + 1:
                self._lose(task, SILENCE)
            elif asked > 3 * self._silent:
                self._let_go(stream)
                self._away.append(task)

    def _let_go(self, stream: socket.socket) -> None:
        self._unanswered.pop(self._selector.unregister(stream).data, None)
        stream.close()

    def _look(self, task: str) -> None:
        """Connect to a task, and tell if it is not what it was."""
        try:
            stream, incarnation = _hold(task, self._dials[task])
        except TaskUnreachable as error:
            self._away.append(task)
            if task in self._known and task not in self._lost:
                self._lose(task, str(error).removeprefix(f"{task} "))
            return
        except Tfk8sError:  # the way to all tasks is broken, which says nothing of this one
            self._away.append(task)
            return
        goes_on = self._known.get(task, incarnation) == incarnation
        if not goes_on and task not in self._lost:
            self._lose(task, "its server was started anew")
        self._known[task] = incarnation
        self._selector.register(stream, selectors.EVENT_READ, task)
        if task in self._lost:
            self._lost.discard(task)
            self._tell(task, "", **({} if goes_on else {"anew": True}))

    def _lose(self, task: str, reason: str) -> None:
        """Tell that a task was lost, where it was."""
        try:
            why = self._explain(task, reason)
        except Tfk8sError:  # nothing of the cluster is to be seen: the way to it is broken
            return
        if why:
            self._lost.add(task)
            self._tell(task, why)

    def _tell(self, task: str, reason: str, **more: bool) -> None:
        os.write(self._told, json.dumps({"task": task, "reason": reason, **more}).encode() + b"\n")


def _hold(task: str, dial: Dial) -> tuple[socket.socket, int]:
    """Return a connection to a task's server, and its incarnation.

    Raises:
        TaskUnreachable: the server does not answer.
        Tfk8sError: the way to it is broken.
    """
    stream = dial()
    try:
        devices = probe.get_status(stream, _ANSWER_SECONDS)
        stream.settimeout(_ANSWER_SECONDS)
    except (OSError, wire.ProbeError) as error:
        stream.close()
        why = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        raise TaskUnreachable(f"{task} does not answer: {why}") from error
    return stream, devices[0].incarnation if devices else 0


def _goes_on(stream: socket.socket) -> bool:
    try:
        return bool(stream.recv(1 << 16))
    except OSError:
        return False
