"""Warns a command that runs for long of the removal of its cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tfk8s.backends.protocol import Backend
from tfk8s.core.lifetime import NOTICE
from tfk8s.core.progress import duration
from tfk8s.errors import Tfk8sError
from tfk8s.log import log

FIRST_LOOK = 60.0  # seconds: shorter commands send no request for the notice
_MAX_JOIN = 0.2  # a request that hangs keeps no command from its end
_PAUSE = 1.0  # between two looks that the clocks of two machines may need


class RemovalNotice:
    """In a `with`, warns once, ten minutes before `max_duration` removes a cluster, or later if less time is left.

    Args:
        backend, name: the cluster's.
        wait: waits for seconds or the end of the `with`; returns whether that is the end.
        clock: returns seconds since the epoch.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        *,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._backend, self._name, self._clock = backend, name, clock
        self._ended = threading.Event()
        self._wait = wait or self._ended.wait
        self._thread = threading.Thread(target=self.watch, name="tfk8s-removal-notice", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_MAX_JOIN)

    def watch(self) -> None:
        """Wait for the time of the notice. A later `up` may have changed the limit, so the limit is read again then."""
        pause = FIRST_LOOK
        while not self._wait(pause):
            try:
                removed_at = self._backend.observe(self._name).removed_at
            except Tfk8sError:  # the command itself will tell
                return
            if removed_at is None:
                return
            left = removed_at - self._clock()
            if left <= NOTICE:
                log.warning('cluster "%s" will be removed in %s (max_duration)', self._name, duration(max(0.0, left)))
                return
            pause = max(_PAUSE, left - NOTICE)
