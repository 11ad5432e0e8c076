"""The process beside process 1 of a pod, for programs of several pods that run again together.

It keeps a connection to the pod whose link has the `Coordinator`. Process 1 forks programs, so it has one thread: this
process has the others, and passes messages on. Without the coordinator for a minute, the program runs again alone.
Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import NoReturn

from tfk8s.core.programs import RunPolicy, parse_restart_word
from tfk8s.task.programs.restarts import restart_coordinator as messages
from tfk8s.task.programs.restarts.restart_coordinator import (
    ALONE,
    ENDED,
    MAX_LINE,
    START,
    BadMessage,
    Coordinator,
    Hello,
    Message,
    News,
    Order,
)

MAX_CONNECTIONS = 4096
_CONNECT_TIMEOUT = 5.0
_INTERVAL = 1.0
_HELLO_TIMEOUT = 10.0  # for the first message of a connection
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


def lines(connection: socket.socket) -> Iterator[Message]:
    """Yield the messages of a connection until its end, or until one that is no message."""
    with contextlib.suppress(OSError, BadMessage), connection.makefile("rb") as stream:
        while line := stream.readline(MAX_LINE + 1):
            yield messages.parse(line)


def send(connection: socket.socket, message: Message) -> bool:
    """Send a message; return whether the connection takes it."""
    try:
        connection.sendall(messages.to_line(message))
    except OSError:
        return False
    return True


class CoordinatorServer:
    """Serves the decisions of a `Coordinator` to the pods of its restart scope.

    Args:
        task: the one of this pod.
        identity: of this pod.
        policy: the rules of the run.
        port: the port to listen on.
    """

    def __init__(self, task: str, identity: str, policy: RunPolicy, port: int) -> None:
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._connections: dict[str, socket.socket] = {}
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._coordinator = Coordinator(task, identity, policy, self._send, time.monotonic)
        self._listener = _listen(port)

    def start(self) -> None:
        """Begin to serve, in threads."""
        for run in (self._accept, self._decide):
            threading.Thread(target=_guarded, args=(run,), daemon=True).start()

    def leave(self) -> None:
        """Tell all pods that nobody decides any more."""
        done = threading.Event()
        self._events.put(self._coordinator.leave)
        self._events.put(done.set)
        done.wait(_CONNECT_TIMEOUT)

    def _accept(self) -> NoReturn:
        while True:
            connection, _ = self._listener.accept()
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                _keep_alive(connection)
                connection.settimeout(_HELLO_TIMEOUT)
                received = lines(connection)
                if isinstance(hello := next(received, None), Hello):
                    connection.settimeout(None)
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
        threading.Thread(target=_guarded, args=(self._connect_again,), daemon=True).start()

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
                _keep_alive(connection)
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
        if order.kind in (messages.STOP, START) and send(self._process_1, order):
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


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that the other side's node is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _guarded(run: Callable[[], object]) -> None:
    """Run a thread. Its failure ends this process, so that process 1 learns of it."""
    try:
        run()
    except BaseException as error:
        print(f"tfk8s: programs run again alone from now on: {type(error).__name__}: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)


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
            server = CoordinatorServer(task, pod, policy, int(port))
            server.start()
    except OSError as error:
        print(f"tfk8s: port {port} is in use, so programs run again alone: {error.strerror}", file=sys.stderr)
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
