"""Questions to servers that may wait for other tasks. Standard library only: this file also runs in pods.

A server keeps a thread, and mostly connections, for each call that it can't answer yet, also if the caller is gone: it
waits for the other task (`DeviceFinder` in tensorflow/core/distributed_runtime/master.cc). So whoever asks again and
again harms the servers.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

from tfk8s.task import wire

FIRST_PAUSE = 5.0  # seconds until the same question is asked once more; each pause is twice the last one


class _Question(NamedTuple):
    stream: socket.socket
    call: wire.PendingCall


class Questions:
    """Questions of which each stays open until its answer, and is asked once more after growing pauses only.

    Attributes:
        missing: the tasks that a task did not reach when it was asked last, by the name of the asked task.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[Hashable, _Question] = {}
        self._pauses: dict[Hashable, tuple[float, float]] = {}  # the earliest time of the next question, and the pause
        self.missing: dict[str, list[str]] = {}

    def ask(
        self, key: Hashable, dial: Callable[[], socket.socket], method: str, timeout: float, request: bytes = b""
    ) -> bytes:
        """Return the answer to a question; if the question is open, wait for the answer once more.

        Args:
            key: stands for the question.
            dial: returns a stream to the server.
            method: as of `wire.call`.
            timeout: in seconds, for this wait.
            request: as of `wire.call`.

        Raises:
            ProbeError, OSError: as `wire.call`. After a TimeoutError, the question is open.
        """
        now = self._clock()
        next_time, pause = self._pauses.get(key, (now, FIRST_PAUSE))
        if now >= next_time:
            if key in self._open:
                self._open.pop(key).stream.close()
            stream = dial()
            try:
                self._open[key] = _Question(stream, wire.PendingCall(stream, method, timeout, request))
            except BaseException:
                stream.close()
                raise
        elif key not in self._open:
            raise TimeoutError("timed out")  # the connection of the last question broke
        try:
            answer = self._open[key].call.wait(timeout)
        except TimeoutError:
            if now >= next_time:
                self._pauses[key] = now + pause, 2 * pause
            raise
        except BaseException as error:
            self._open.pop(key).stream.close()
            if isinstance(error, wire.GrpcError):  # an answer, too
                self._pauses.pop(key, None)
            raise
        self._open.pop(key).stream.close()
        self._pauses.pop(key, None)
        return answer

    def close(self) -> None:
        """Give up all open questions."""
        for key in list(self._open):
            with contextlib.suppress(KeyError, OSError):
                self._open.pop(key).stream.close()
        self.missing.clear()

    def __del__(self) -> None:
        self.close()
