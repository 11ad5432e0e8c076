"""The server of the pod that decides when programs run again together.

Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from tfk8s.core.programs import END_TIMEOUT, RunPolicy
from tfk8s.task import activity
from tfk8s.task.programs.restarts.restart_connections import cut, guarded, keep_alive, lines, say, send
from tfk8s.task.programs.restarts.restart_coordinator import Coordinator, Hello, Message, News, Order

MAX_CONNECTIONS = 4096
_INTERVAL = 1.0
_LEAVE_TIMEOUT = 5.0
_HELLO_TIMEOUT = 10.0  # for the first message of a connection


class CoordinatorServer:
    """Serves the decisions of a `Coordinator` to the pods of its restart scope.

    Args:
        task: the one of this pod.
        identity: of this pod.
        policy: the rules of the run.
        port: the port to listen on; 0 for any.
        grace: the seconds that a program has to save.

    Attributes:
        port: the port.
    """

    def __init__(self, task: str, identity: str, policy: RunPolicy, port: int, grace: float = END_TIMEOUT) -> None:
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._connections: dict[str, socket.socket] = {}
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._coordinator = Coordinator(task, identity, policy, self._send, say, time.monotonic, grace)
        self._listener = activity.listen(port)
        self.port = int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Begin to serve, in threads."""
        for run in (self._accept, self._decide):
            threading.Thread(target=guarded, args=(run,), daemon=True).start()

    def leave(self) -> None:
        """Tell all pods that nobody decides any more."""
        done = threading.Event()
        self._events.put(self._coordinator.leave)
        self._events.put(done.set)
        done.wait(_LEAVE_TIMEOUT)

    def _accept(self) -> NoReturn:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # no descriptor is free
                threading.Event().wait(_INTERVAL)
                continue
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                keep_alive(connection)
                received = lines(connection)
                limit = threading.Timer(_HELLO_TIMEOUT, cut, [connection])
                limit.start()
                hello = next(received, None)
                limit.cancel()
                if isinstance(hello, Hello):
                    self._pass_on(connection, hello, received)
        finally:
            self._slots.release()

    def _pass_on(self, connection: socket.socket, hello: Hello, received: Iterator[Message]) -> None:
        def begin() -> None:
            self._connections[hello.task] = connection
            self._coordinator.welcome(hello)

        def end() -> None:
            if self._connections.get(hello.task) is connection:
                del self._connections[hello.task]
                self._coordinator.lose(hello.task)

        def learn(news: News) -> None:
            if self._connections.get(hello.task) is connection:  # else the pod has come back by another one
                self._coordinator.learn(hello.task, news)

        self._events.put(begin)
        for message in received:
            if not isinstance(message, News):
                break
            self._events.put(functools.partial(learn, message))
        self._events.put(end)

    def _decide(self) -> NoReturn:
        while True:
            with contextlib.suppress(queue.Empty):
                self._events.get(timeout=_INTERVAL)()
            self._coordinator.look()

    def _send(self, task: str, order: Order) -> None:
        if connection := self._connections.get(task):
            send(connection, order)
