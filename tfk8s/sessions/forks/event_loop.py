"""An event loop for processes that fork: descriptors, timers, and the ends of processes, on one thread.

Such a process has one thread because it forks. A fork copies only the forking thread, and a lock of another thread
would stay locked in the child.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

Callback = Callable[[], None]
PAUSE = 1.0  # seconds until a callback that has failed is called again


class Loop:
    """Calls back when a descriptor is readable, a timer is due, or a child process has ended.

    An error in a callback is logged, because it must not end the whole cluster. What is readable stays readable then,
    such as a listener that gets no descriptor: its next call comes after a pause.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()
        self._running = False
        self._children: set[int] = set()
        self._paused: dict[int | socket.socket, Callback] = {}
        self._reported = ""

    def on_readable(self, source: int | socket.socket, callback: Callback) -> None:
        """Call `callback` whenever `source` is readable, until `forget`."""
        self._selector.register(source, selectors.EVENT_READ, callback)

    def forget(self, source: int | socket.socket) -> None:
        """Stop watching `source`. Call this before closing `source`."""
        if self._paused.pop(source, None) is None:
            self._selector.unregister(source)

    def after(self, seconds: float, callback: Callback) -> None:
        """Call `callback` once, `seconds` from now."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), callback))

    def on_end(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call `callback` once with the wait status of the child process `pid`, when it has ended."""
        descriptor = os.pidfd_open(pid)
        self._children.add(pid)

        def ended() -> None:
            self._children.discard(pid)
            self.forget(descriptor)
            os.close(descriptor)
            callback(os.waitpid(pid, 0)[1])

        self.on_readable(descriptor, ended)

    def on_termination(self, callback: Callback) -> None:
        """Call `callback` at each SIGTERM, and ignore SIGINT. Forks restore both by `processes.reset_signals`."""
        reader, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

        def terminated() -> None:
            os.read(reader, 64)
            callback()

        self.on_readable(reader, terminated)

    def waits_for(self, pid: int) -> bool:
        """Return whether `on_end` was called with this process, which has not ended yet."""
        return pid in self._children

    def run(self) -> None:
        """Call back until `stop`."""
        self._running = True
        while self._running:
            for key, _ in self._selector.select(self._until_timer()):
                if self._watches(key) and not self._call(key.data) and self._watches(key):
                    self._pause(key.fileobj, key.data)
            while self._timers and self._timers[0][0] <= time.monotonic():
                self._call(heapq.heappop(self._timers)[2])

    def stop(self) -> None:
        """Make `run` return after the current callbacks."""
        self._running = False

    def _until_timer(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _watches(self, key: selectors.SelectorKey) -> bool:
        """Return whether no callback has called `forget` for the source of a key."""
        return self._selector.get_map().get(key.fd) == key

    def _call(self, callback: Callback) -> bool:
        """Call back; return whether that succeeded. The same error again is not logged again."""
        try:
            callback()
        except Exception:
            text = traceback.format_exc()
            if text != self._reported:
                self._reported = text
                with contextlib.suppress(OSError):  # the disk is full
                    sys.stderr.write(text)
            return False
        return True

    def _pause(self, source: Any, callback: Callback) -> None:
        self._selector.unregister(source)
        self._paused[source] = callback
        self.after(PAUSE, lambda: self._resume(source, callback))

    def _resume(self, source: int | socket.socket, callback: Callback) -> None:
        if self._paused.get(source) is callback:
            del self._paused[source]
            self.on_readable(source, callback)
