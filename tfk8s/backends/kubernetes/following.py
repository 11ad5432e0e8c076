"""A cluster that is looked at again and again, at little cost for the API server and for the machine it shares.

A look on its own asks for everything. While a cluster comes up, as many looks as show it at once would take more of a
small machine than the servers that start there. So here a watch tells of the pods, a stream of each server's log tells
that it listens, and all else is asked for twice a second.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from tfk8s.backends.kubernetes import observe, paths
from tfk8s.backends.kubernetes.client import Client, Query, address
from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.backends.kubernetes.watch import Watch
from tfk8s.errors import Tfk8sError
from tfk8s.member import is_listening_line
from tfk8s.pods import Object
from tfk8s.status import ClusterStatus

_FRESH_SECONDS = 0.5


@contextlib.contextmanager
def follow(client: Client, namespace: str, name: str) -> Iterator[Callable[[], ClusterStatus]]:
    """Lend a function that returns what is there of a cluster, a moment ago at most."""
    reader = _Reader(client, namespace, name)
    try:
        yield lambda: observe.status(reader, observe.find(reader, namespace, name), reader.listens)
    finally:
        reader.close()


class _Reader:
    """Reads from an API server as `Client` does; what it was asked for lately it knows."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self.context, self.namespace = client.context, client.namespace
        self._client = client
        self._known: dict[str, tuple[float, Object]] = {}
        self._listening: dict[tuple[str, int], bool] = {}
        self._path = paths.collection("Pod", namespace)
        self._pods: Watch | None = Watch(client, self._path, paths.of_cluster(name))
        self._closed = threading.Event()
        threading.Thread(target=self._watch, args=(self._pods,), name="tfk8s-pods", daemon=True).start()

    def close(self) -> None:
        """Let the streams end."""
        self._closed.set()

    def get(self, path: str, query: Query | None = None) -> Object:
        """Return an object, or a list of them."""
        if path == self._path and self._pods is not None and self._pods.has_listed:
            return {"items": list(self._pods.known.values())}
        url, now = address(path, query), time.monotonic()
        asked, found = self._known.get(url, (-_FRESH_SECONDS, {}))
        if now - asked >= _FRESH_SECONDS:
            found = self._client.get(path, query)
            self._known[url] = now, found
        return found

    def text(self, path: str, query: Query | None = None) -> str:
        """Return a text, such as a log."""
        return self._client.text(path, query)

    def listens(self, _: observe.Reader, pod: Object) -> bool:
        """Return whether the server in a pod has said that it listens."""
        run = pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]
        if run not in self._listening:
            self._listening[run] = False
            threading.Thread(target=self._listen, args=(run, pod), name="tfk8s-log", daemon=True).start()
        return self._listening.get(run, False)

    def _listen(self, run: tuple[str, int], pod: Object) -> None:
        with contextlib.suppress(Tfk8sError):
            for line in self._client.lines(observe.log_path(pod), {"follow": True}):
                if is_listening_line(line):
                    self._listening[run] = True
                if self._listening[run] or self._closed.is_set():
                    return
        del self._listening[run]  # nothing came for a while: the next look asks anew

    def _watch(self, pods: Watch) -> None:
        try:
            for _ in pods.changes(lambda: not self._closed.is_set()):
                if self._closed.is_set():
                    return
        except ApiError:  # who may list pods may not watch them, perhaps
            self._pods = None
