"""Every change of the objects that a query selects, also across broken streams; client-go calls this a reflector.

A watch streams changes from a resource version on. Its stream ends when the API server likes, breaks, falls silent, or
begins at a version that is too old (410: the API server remembers five minutes). After the first three, the next stream
begins at the last version. After a 410 the objects are listed again, and the differences are yielded as changes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths, shapes
from tfk8s.backends.kubernetes.api_server.client import Client, Query
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.errors import BackendUnreachable
from tfk8s.render.pods import Object

# The API server ends a stream after so many seconds, so that a dead stream differs from a quiet one. Each stream that
# ends so is followed by one of twice the time: an observer that stays for hours costs few requests.
STREAM_TIMEOUT, MAX_STREAM_TIMEOUT = 4, 32
DEAD_STREAM_TIMEOUT = 2.0  # seconds that a stream may last longer
_GONE = 410


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A change of one object.

    Attributes:
        deleted: the object is gone; `object` is its last version.
        object: the object.
    """

    deleted: bool
    object: Object


class Reflector:
    """The objects that a query selects, and their changes.

    Args:
        path: of a collection.
        query: selects objects in the collection.

    Attributes:
        objects: the objects that exist, by uid.
    """

    def __init__(self, client: Client, path: str, query: Query) -> None:
        self._client, self._path, self._query = client, path, query
        resource = paths.resource(path)
        self._kind = resource.kind if resource else ""
        self._version = ""
        self.objects: dict[str, Object] = {}
        self._seconds = STREAM_TIMEOUT  # of the next stream
        self._silence: tuple[str, str | None] | None = None  # not the error itself, which would keep all of its frames

    def relist(self) -> list[ObjectChange]:
        """List the objects; return the changes since the last list. `changes` then yields later ones only.

        Raises:
            ApiError: the API server refuses.
            BackendUnreachable: the API server does not answer.
        """
        answer = self._client.get(self._path, self._query)
        self._silence = None
        listed = {item["metadata"]["uid"]: item for item in answer["items"]}
        deleted = [item for uid, item in self.objects.items() if uid not in listed]
        changed = [item for uid, item in listed.items() if _version(self.objects.get(uid)) != _version(item)]
        self.objects, self._version = listed, answer["metadata"]["resourceVersion"]
        return [
            *(ObjectChange(deleted=True, object=item) for item in deleted),
            *(ObjectChange(deleted=False, object=item) for item in changed),
        ]

    def changes(self, is_needed: Callable[[], bool] = lambda: True) -> Generator[ObjectChange]:
        """Yield each change, first the objects that exist. While the API server is silent, wait for it.

        Args:
            is_needed: ends the changes by returning False; called every few seconds.

        Raises:
            ApiError: the API server refuses.
        """
        for _ in polling.poll(None):
            if not is_needed():
                return
            try:
                yield from self._stream() if self._version else self.relist()
            except BackendUnreachable as error:  # after the client's own retries
                self._silence = str(error), error.help

    def require_connection(self) -> None:
        """Raise a BackendUnreachable while the API server does not answer, so that `objects` may be old."""
        if self._silence is not None:
            message, advice = self._silence
            raise BackendUnreachable(message, help=advice)

    def _stream(self) -> Iterator[ObjectChange]:
        query: dict[str, str | int | bool] = {
            **self._query,
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version,
            "timeoutSeconds": self._seconds,
        }
        begin, seconds, self._seconds = time.monotonic(), self._seconds, STREAM_TIMEOUT
        try:
            with self._client.lines(self._path, query, seconds + DEAD_STREAM_TIMEOUT) as lines:
                self._silence = None
                for line in lines:
                    change = self._take(json.loads(line))
                    if change is not None:
                        yield change
            if seconds <= time.monotonic() - begin < seconds + DEAD_STREAM_TIMEOUT:
                self._seconds = min(2 * seconds, MAX_STREAM_TIMEOUT)
        except ApiError as error:
            if error.code != _GONE:
                raise
            self._version = ""
        except (ValueError, LookupError, TypeError, RecursionError):  # it ended within a line, or is no watch
            return

    def _take(self, event: Object) -> ObjectChange | None:
        """Update `objects` from an event of the watch; return the change."""
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            self._version = ""
            return None
        self._version = item["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return None
        if problem := shapes.problem(item, self._kind, is_stored=True):
            self._version = ""  # the list that follows says what is wrong
            raise ValueError(problem)  # later events of the stream would set the version again
        if kind == "DELETED":
            self.objects.pop(item["metadata"]["uid"], None)
        else:
            self.objects[item["metadata"]["uid"]] = item
        return ObjectChange(deleted=kind == "DELETED", object=item)


def _version(item: Object | None) -> str:
    return str(item["metadata"]["resourceVersion"]) if item else ""
