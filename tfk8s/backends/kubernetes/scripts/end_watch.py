"""Records why tasks and the warm pod end while a script runs in that pod."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.reflector import ObjectChange
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.errors import ClusterError, Tfk8sError

DELAY = 1.0


class EndWatch:
    """Observes a cluster from `DELAY` after entering the `with` on: most scripts have ended by then, and need no watch.

    Args:
        client: the API server.
        namespace, name: the cluster's.
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._informer = Informer(client, namespace, name)
        self._timer = threading.Timer(DELAY, self._start)
        self._timer.daemon = True
        self._lock, self._has_begun = threading.Lock(), threading.Event()
        self._is_called = self._is_watching = self._is_over = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
        if self._is_watching:  # else the thread that begins to watch ends this
            self._informer.__exit__(kind, error, trace)

    def ends(self, timeout: float) -> Mapping[str, str]:
        """Return why pods of tasks ended, by their names; wait for the first end until the timeout.

        Nothing is returned, and nobody waits, if the cluster can't be observed.
        """
        self._start()
        self._has_begun.wait(timeout)
        return self._informer.ends(timeout) if self._is_watching else {}

    def last_change(self, job: str) -> ObjectChange | None:
        """Return the last change of a Job's pod, also after the pod's end; None if the cluster is not observed."""
        with contextlib.suppress(ClusterError):  # the API server is silent
            if self._is_watching:
                return self._informer.last_change(job)
        return None

    def _start(self) -> None:
        with self._lock:
            if self._is_called or self._is_over:
                return
            self._is_called = True
        try:
            with contextlib.suppress(Tfk8sError):  # users who may not watch learn less
                self._informer.__enter__()  # takes seconds while the API server does not answer
                with self._lock:
                    self._is_watching = not self._is_over
                if not self._is_watching:
                    self._informer.__exit__(None, None, None)
        finally:
            self._has_begun.set()
