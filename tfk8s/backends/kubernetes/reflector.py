"""What becomes of objects: every change, and above all the last one, whatever happens to the stream that tells.

A watch is a stream of changes from a resource version on. It ends when the API server likes, breaks, goes dead, or says
that its version is too old (410: the API server remembers five minutes). The first three go on where they were; after
the last, the objects are listed again, and what differs from what was known is told as a watch would have told it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tfk8s import polling
from tfk8s.backends.kubernetes.client import Client, Query
from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.errors import BackendUnreachable
from tfk8s.render.pods import Object

STREAM_SECONDS = 4  # the API server ends a stream after that, so that a dead one is told from one without news
DEAD_SECONDS = 6.0
_TOO_OLD = 410


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one object.

    Attributes:
        gone: it was deleted; `now` is what it was at last.
        now: the object.
    """

    gone: bool
    now: Object


class Reflector:
    """The objects that a query selects, and what becomes of them.

    Args:
        client: asks.
        path: of a collection.
        query: selects in it.

    Attributes:
        known: the objects that are there, by uid.
    """

    def __init__(self, client: Client, path: str, query: Query) -> None:
        self._client, self._path, self._query = client, path, query
        self._version = ""
        self.known: dict[str, Object] = {}
        self._silence: tuple[str, str | None] | None = None  # not the error itself, which would keep all of its frames

    def begin(self) -> list[Object]:
        """List, and return, the objects that are there; `changes` then yields what is new only.

        Raises:
            ApiError, BackendUnreachable: as the client.
        """
        return [change.now for change in self._list()]

    def changes(self, goes_on: Callable[[], bool] = lambda: True) -> Iterator[Change]:
        """Yield each change, first the objects that are there, until `goes_on` says no: asked every few seconds.

        Raises:
            ApiError: the API server refuses. While it is silent, nothing is raised.
        """
        for _ in polling.poll(None):
            if not goes_on():
                return
            try:
                yield from self._stream() if self._version else self._list()
            except BackendUnreachable as error:  # it has been asked for a while
                self._silence = str(error), error.help

    def require_news(self) -> None:
        """Raise a BackendUnreachable where nobody tells of the objects now."""
        if self._silence is not None:
            message, cure = self._silence
            raise BackendUnreachable(message, help=cure)

    def _list(self) -> Iterator[Change]:
        listed = self._client.get(self._path, self._query)
        self._silence = None
        there = {thing["metadata"]["uid"]: thing for thing in listed["items"]}
        gone = [thing for uid, thing in self.known.items() if uid not in there]
        new = [thing for uid, thing in there.items() if _version(self.known.get(uid)) != _version(thing)]
        self.known, self._version = there, listed["metadata"]["resourceVersion"]
        yield from (Change(gone=True, now=thing) for thing in gone)
        yield from (Change(gone=False, now=thing) for thing in new)

    def _stream(self) -> Iterator[Change]:
        query: dict[str, str | int | bool] = {
            **self._query,
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version,
            "timeoutSeconds": STREAM_SECONDS,
        }
        try:
            with contextlib.closing(self._client.lines(self._path, query, DEAD_SECONDS)) as lines:
                self._silence = None
                for line in lines:
                    change = self._take(json.loads(line))
                    if change is not None:
                        yield change
        except ApiError as error:
            if error.code != _TOO_OLD:
                raise
            self._version = ""
        except ValueError:  # a stream that was cut off within a line, and was ended properly all the same
            return

    def _take(self, event: Object) -> Change | None:
        """Note an event; return what it says of an object."""
        kind, thing = event["type"], event["object"]
        if kind == "ERROR":
            self._version = ""
            return None
        self._version = thing["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return None
        if kind == "DELETED":
            self.known.pop(thing["metadata"]["uid"], None)
        else:
            self.known[thing["metadata"]["uid"]] = thing
        return Change(gone=kind == "DELETED", now=thing)


class Watcher:
    """Hears of each change on a thread, from its creation to its `with`'s end.

    Args:
        watch: tells.

    Attributes:
        refused: the API server does not let it watch, and it hears of nothing.
    """

    def __init__(self, watch: Reflector) -> None:
        self.watch, self.refused = watch, False
        self._over = threading.Event()
        threading.Thread(target=self._run, name="tfk8s-watch", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the thread end, which it does when its stream does, within seconds."""
        self._over.set()

    def hear(self, change: Change) -> None:
        """Take a change, on the thread."""

    def _run(self) -> None:
        try:
            for change in self.watch.changes(lambda: not self._over.is_set()):
                if self._over.is_set():
                    return
                self.hear(change)
        except ApiError:  # who may list may not watch, perhaps
            self.refused = True


class LastSeen(Watcher):
    """One object as it was seen last, also when it is gone by now; who may not watch has to be quick in looking.

    Attributes:
        thing: the object; None until it was seen.
    """

    def __init__(self, watch: Reflector) -> None:
        self.thing: Object | None = None
        super().__init__(watch)

    def hear(self, change: Change) -> None:
        """Note what it is now."""
        self.thing = change.now


def _version(thing: Object | None) -> str:
    return str(thing["metadata"]["resourceVersion"]) if thing else ""
