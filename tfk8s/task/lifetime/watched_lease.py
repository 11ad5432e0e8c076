"""The lease of a cluster, as the cluster's own Job sees it. Standard library only: this file runs in pods."""

from __future__ import annotations

from collections.abc import Callable

from tfk8s.core.lifetime import RENEWED, RemovableObject
from tfk8s.task.lifetime.object_server import FAILURES, ObjectServer


class Lease:
    """Measures the time since `tfk8s run` has renewed the lease of its cluster.

    As in client-go's leader election, a renewal is a changed value, and the time is this process' own: no two clocks
    have to agree. A poll that fails counts as a renewal: where the API server does not answer, `run` can't renew.

    Args:
        item: the object with the annotation that renewals change.
        clock: returns a time in seconds that only grows.
    """

    def __init__(self, server: ObjectServer, item: RemovableObject, clock: Callable[[], float]) -> None:
        self._server, self._item, self._clock = server, item, clock
        self._value: str | None = None
        self._since = clock()

    def silence(self) -> float:
        """Return the seconds since the last renewal."""
        try:
            body = self._server.get(self._item).body or {}
            value = body.get("metadata", {}).get("annotations", {}).get(RENEWED)
        except FAILURES:
            self._since = self._clock()
        else:
            if value != self._value:
                self._value, self._since = value, self._clock()
        return self._clock() - self._since
