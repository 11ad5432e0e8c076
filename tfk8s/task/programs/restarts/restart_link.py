"""The process beside process 1 of a pod, for programs of several pods that run again together.

It keeps a connection to the pod whose link has the `Coordinator`. Process 1 forks programs, so it has one thread: this
process has the others, and passes messages on. Without the coordinator for a minute, the program runs again alone.
Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable

from tfk8s.core.programs import RunPolicy, grace, parse_restart_word
from tfk8s.task.programs.restarts import restart_coordinator as messages
from tfk8s.task.programs.restarts.coordinator_server import CoordinatorServer
from tfk8s.task.programs.restarts.restart_connections import guarded, keep_alive, lines, say, send
from tfk8s.task.programs.restarts.restart_coordinator import ALONE, ENDED, START, Hello, News, Order

_CONNECT_TIMEOUT = 5.0
_INTERVAL = 1.0


class Link:
    """Passes messages on between process 1 and the coordinator.

    Args:
        task: the one of this pod.
        pod: the identity of this pod.
        address: the coordinator's host and port.
        process_1: the socket to process 1.
        wake: tells process 1 that there is an order.
        patience: the seconds without a coordinator, after which a program that has failed runs again alone.
    """

    def __init__(
        self, task: str, pod: str, address: tuple[str, int], process_1: socket.socket, wake: Callable[[], object],
        patience: float = 60.0,
    ) -> None:  # fmt: skip
        self._task, self._pod, self._address, self._patience = task, pod, address, patience
        self._process_1, self._wake = process_1, wake
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._since = self._started = time.monotonic()  # the last connection's end, and the program's start
        self._turn = self._restarts = 0
        self._coordinator = ""
        self._code = messages.RUNS
        self._is_alone = False

    def start(self) -> None:
        """Begin to connect, in a thread."""
        threading.Thread(target=guarded, args=(self._connect_again,), daemon=True).start()

    def run(self) -> News | None:
        """Pass on the news of process 1, until its program has ended for good; return that news, None without it."""
        for news in lines(self._process_1):
            if not isinstance(news, News):
                break
            with self._lock:
                self._code = news.code if news.kind == messages.FAILED else messages.WAITS
                if self._connection:
                    send(self._connection, news)
            if news.kind == ENDED:
                return news
            self._go_on_alone()
        return None

    def _connect_again(self) -> None:
        pause = threading.Event()
        while not self._is_alone:
            with contextlib.suppress(OSError), socket.create_connection(self._address, _CONNECT_TIMEOUT) as connection:
                keep_alive(connection)
                connection.settimeout(None)
                self._talk(connection)
            self._go_on_alone()
            pause.wait(_INTERVAL)

    def _talk(self, connection: socket.socket) -> None:
        with self._lock:
            age = int(time.monotonic() - self._started)
            hello = Hello(self._task, self._pod, self._coordinator, self._turn, self._restarts, self._code, age)
            self._connection = connection if send(connection, hello) else None
        for order in lines(connection):
            if not isinstance(order, Order):
                break
            self._obey(order)
            if self._is_alone:
                break
        with self._lock:
            self._connection, self._since = None, time.monotonic()

    def _obey(self, order: Order) -> None:
        with self._lock:
            self._coordinator = order.coordinator
            self._is_alone = self._is_alone or order.kind == ALONE
            if order.kind == messages.WELCOME and self._code == messages.RUNS:
                self._turn = order.turn
            if order.kind == START:
                self._turn, self._restarts, self._code = order.turn, order.restarts, messages.RUNS
                self._started = time.monotonic()
        if order.kind != ALONE and send(self._process_1, order):
            self._wake()

    def _go_on_alone(self) -> None:
        """Start a program that waits, if nobody decides about it."""
        with self._lock:
            waits = self._connection is None and time.monotonic() - self._since >= self._patience
            if self._code == messages.RUNS or not (self._is_alone or waits):
                return
            restarts = self._restarts + (self._code >= 0)
            order = Order(START, self._turn, restarts, "", self._coordinator)
        self._obey(order)


def main(arguments: list[str]) -> int:
    """Link this pod.

    Args:
        arguments: the task; the coordinator's task, host and port; the descriptor to process 1; the rules of restarts.
    """
    task, leader, host, port, descriptor, restart_on, max_restarts = arguments
    parent, pod = os.getppid(), uuid.uuid4().hex
    policy = RunPolicy(restart_on=parse_restart_word(restart_on), max_restarts=int(max_restarts))
    server = None
    try:
        if task == leader:
            resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
            server = CoordinatorServer(task, pod, policy, int(port), grace(os.environ))
            server.start()
    except OSError as error:
        say(f"port {port} is in use, so programs run again alone: {error.strerror}")
        return 1
    link = Link(
        task, pod, ("localhost" if server else host, int(port)), socket.socket(fileno=int(descriptor)),
        lambda: os.kill(parent, signal.SIGUSR1),
    )  # fmt: skip
    link.start()
    last = link.run()
    if server and last and last.code == 0:
        server.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
