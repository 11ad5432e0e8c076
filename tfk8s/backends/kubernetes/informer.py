"""A cluster that is looked at again and again, at little cost for the API server and for the machine it shares.

A look on its own asks for everything. While a cluster comes up, as many looks as show it at once would take more of a
small machine than the servers that start there, and each would wait for a busy API server. So here a look reads what
watches tell, and a stream of each server's log tells that it listens: a look asks nobody, and takes no time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from tfk8s.backends.kubernetes import status
from tfk8s.backends.kubernetes.client import Client, Query, address
from tfk8s.backends.kubernetes.reflector import Reflector, Watcher
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import Tfk8sError
from tfk8s.render.pods import Object
from tfk8s.task.config import is_listening_line

_FRESH_SECONDS = 0.25  # for who may list, and not watch


@contextlib.contextmanager
def follow(client: Client, namespace: str, name: str) -> Iterator[Callable[[], ClusterStatus]]:
    """Lend a function that returns what is there of a cluster, a moment ago at most."""
    reader = _Reader(client, namespace)
    try:
        yield lambda: status.status(reader, status.find(reader, namespace, name), reader.listens)
    finally:
        reader.close()


class _Reader:
    """Reads from an API server as `Client` does; lists that were asked for once are watched from then on."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.context, self.namespace = client.context, namespace
        self._client = client
        self._lists: dict[str, _List] = {}
        self._listening: dict[tuple[str, int], bool] = {}
        self._closed = threading.Event()

    def close(self) -> None:
        """Let the streams end."""
        self._closed.set()
        for watched in self._lists.values():
            watched.close()

    def get(self, path: str, query: Query | None = None) -> Object:
        """Return a list of objects.

        Raises:
            ApiError, BackendUnreachable: as the client; also while it is silent.
        """
        url = address(path, query)
        if url not in self._lists:
            self._lists[url] = _List(self._client, path, query or {})
        return {"items": self._lists[url].items()}

    def text(self, path: str, query: Query | None = None) -> str:
        """Return a text, such as a log."""
        return self._client.text(path, query)

    def listens(self, _: status.Reader, pod: Object) -> bool:
        """Return whether the server in a pod has said that it listens."""
        run = pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]
        if run not in self._listening:
            self._listening[run] = False
            threading.Thread(target=self._listen, args=(run, pod), name="tfk8s-log", daemon=True).start()
        return self._listening.get(run, False)

    def _listen(self, run: tuple[str, int], pod: Object) -> None:
        with contextlib.suppress(Tfk8sError):
            for line in self._client.lines(status.log_path(pod), {"follow": True}):
                if is_listening_line(line):
                    self._listening[run] = True
                if self._listening[run] or self._closed.is_set():
                    return
        del self._listening[run]  # nothing came for a while: the next look asks anew


class _List(Watcher):
    """The objects that a query selects: listed at first, and then known from a watch."""

    def __init__(self, client: Client, path: str, query: Query) -> None:
        watch = Reflector(client, path, query)
        watch.begin()
        self._listed = time.monotonic()
        super().__init__(watch)

    def items(self) -> list[Object]:
        """Return what is there."""
        self.watch.require_news()
        if self.refused and time.monotonic() - self._listed >= _FRESH_SECONDS:
            self.watch.begin()
            self._listed = time.monotonic()
        return list(self.watch.known.values())
