"""The link of process 1 to the programs of other pods that run again together with its own.

Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping

from tfk8s.core import naming
from tfk8s.core.programs import NO_COORDINATOR
from tfk8s.task.programs.restarts import restart_coordinator as messages
from tfk8s.task.programs.restarts.restart_coordinator import MAX_LINE, BadMessage, News, Order

SIGNAL = signal.SIGUSR1  # says that an order has come
_END_TIMEOUT = 3.0  # for the last news to be passed on


class LinkedRestarts:
    """The news of process 1 for the coordinator, and the orders that come back.

    Args:
        connection: to the process of the link; None if the program runs again alone.

    Attributes:
        restarts: those that count, of all programs, as the last order says.
    """

    def __init__(self, connection: socket.socket | None) -> None:
        self._connection = connection
        self._received = b""
        self._orders: deque[Order] = deque()
        self.restarts = 0

    @property
    def is_alone(self) -> bool:
        """True if nobody else decides about restarts."""
        return self._connection is None

    def take_order(self) -> Order | None:
        """Return the next order that has come. The end of the link's process leaves the program alone."""
        if not self._orders and self._connection is not None:
            self._receive(self._connection)
        return self._orders.popleft() if self._orders else None

    def _receive(self, connection: socket.socket) -> None:
        try:
            received = connection.recv(MAX_LINE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._connection = None
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            with contextlib.suppress(BadMessage):
                if isinstance(order := messages.parse(line + b"\n"), Order):
                    self.restarts = order.restarts
                    self._orders.append(order)

    def tell(self, kind: str, code: int) -> None:
        """Tell what has become of the program; the last news is passed on before this returns."""
        if self._connection is None:
            return
        with contextlib.suppress(OSError):
            self._connection.sendall(messages.to_line(News(kind, code)))
            if kind == messages.ENDED:
                self._connection.shutdown(socket.SHUT_WR)
                self._connection.settimeout(_END_TIMEOUT)
                while self._connection.recv(MAX_LINE):  # until the end of the link's process
                    pass


def start(task: str, word: str, policy_words: list[str], environment: Mapping[str, str]) -> LinkedRestarts:
    """Start the process of the link.

    Args:
        task: the one of this pod.
        word: the coordinator's task and port, `worker/0:2322`, or `NO_COORDINATOR`.
        policy_words: the rules of restarts, as words of the command.
        environment: the variables of the pod.
    """
    if word == NO_COORDINATOR:
        return LinkedRestarts(None)
    leader, _, port = word.rpartition(":")
    job, _, index = leader.rpartition("/")
    address = naming.pod_address(environment["TFK8S_NAME"], environment["TFK8S_NAMESPACE"], job, int(index), int(port))
    own, other = socket.socketpair()
    with other:
        other.set_inheritable(True)
        words = (
            sys.executable, "-P", "-m", "tfk8s.task.programs.restarts.restart_link",
            task, leader, *address.rsplit(":", 1), str(other.fileno()), *policy_words,
        )  # fmt: skip
        try:
            os.posix_spawn(sys.executable, words, environment, setsigmask=())
        except OSError as error:
            print(f"tfk8s: programs run again alone: {error.strerror}", file=sys.stderr, flush=True)
            own.close()
            return LinkedRestarts(None)
    return LinkedRestarts(own)
