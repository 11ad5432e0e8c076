"""Requests to the API server, with objects as plain dicts.

The official client connects (`transport`). None of its classes for objects is used: what tfk8s sends is what
`manifests` renders.

API servers are restarted, refuse when they have too much to do, and lose connections. What may be asked twice (all but
POST: `up` is server-side apply) is asked again for `PATIENCE` seconds; POST only where it was not heard.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast
from urllib.parse import urlencode

import urllib3

from tfk8s import polling
from tfk8s.backends.kubernetes import errors
from tfk8s.backends.kubernetes.transport import Response, Transport
from tfk8s.log import log
from tfk8s.render.pods import Object

CONNECT_SECONDS = 3.0
READ_SECONDS = 6.0
STREAM_SECONDS = 10.0  # a stream on which nothing came for so long may be dead
PATIENCE = 8.0
SETTLES_SECONDS = 15.0  # an API server that starts answers before it has read its Roles, and forbids everything

OLDEST = (1, 28)  # gives a StatefulSet's pods the label apps.kubernetes.io/pod-index

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"

Query = Mapping[str, str | int | bool]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the API server.

    Attributes:
        method, path, query: what.
        body: an object, or None.
        content_type: the body's.
        seconds: how long to wait for the answer, and for each part of it; None is `READ_SECONDS`.
    """

    method: str
    path: str
    query: Query | None = None
    body: Object | None = None
    content_type: str = "application/json"
    seconds: float | None = None


class Client:
    """One API server, as one context of the kubeconfig names it.

    Args:
        context: None is the kubeconfig's current one.

    Attributes:
        context: its name; "in-cluster" in a pod without a kubeconfig.
        namespace: the one that the context names.
        url: its address.
        transport: connects to it.
    """

    def __init__(self, context: str | None) -> None:
        self.transport = Transport(context)
        self.context, self.namespace, self.url = self.transport.context, self.transport.namespace, self.transport.url
        self._answered = self._told = False
        self._lock = threading.Lock()
        self._broke = -SETTLES_SECONDS  # when a connection broke last

    def get(self, path: str, query: Query | None = None) -> Object:
        """Return an object, or a list of them."""
        return self.send("GET", path, query)

    def find(self, path: str) -> Object | None:
        """Return an object, or None where there is none."""
        try:
            return self.send("GET", path)
        except errors.ApiError as error:
            if error.code == 404:
                return None
            raise

    def send(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Make a request and return the object in its answer; deleting what is not there is no failure.

        Raises:
            ApiError: the API server refuses.
            BackendUnreachable: it does not answer, or can't for now.
        """
        try:
            return self._ask(
                Request(method=method, path=path, query=query, body=body, content_type=content_type), _object
            )
        except errors.ApiError as error:
            if (method, error.code) == ("DELETE", 404):
                return {}
            raise

    def text(self, path: str, query: Query | None = None) -> str:
        """Return a text, such as a log."""
        return self._ask(
            Request(method="GET", path=path, query=query), lambda answer: answer.data.decode(errors="replace")
        )

    def lines(self, path: str, query: Query | None = None, seconds: float = STREAM_SECONDS) -> Generator[str]:
        """Ask for a text; return its lines while it is written, to its end.

        A broken connection ends it too, and one on which nothing comes for so many seconds; what came of a line then
        is left out.
        """
        return self._lines(
            self._ask(Request(method="GET", path=path, query=query, seconds=seconds), lambda answer: answer)
        )

    def _lines(self, answer: Response) -> Generator[str]:
        rest = b""
        try:
            for block in answer.stream(1 << 16):
                *whole, rest = (rest + block).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace")
        except (urllib3.exceptions.HTTPError, OSError):
            self._broke = time.monotonic()
            return
        finally:
            answer.close()
        if rest:
            yield rest.decode(errors="replace")

    def _ask(self, request: Request, read: Callable[[Response], T]) -> T:
        """Return what `read` makes of the answer to a request, which is made again while that may help."""
        retries = polling.Retries(PATIENCE)
        while True:
            try:
                answer = self._ask_once(request, read, min(request.seconds or READ_SECONDS, max(1.0, retries.left)))
                self._tell_of_silence(None)
                return answer
            except (errors.Unserved, errors.Unanswered) as error:
                nobody_there = not self._answered and isinstance(error, errors.Unanswered) and error.unheard
                harmful = request.method == "POST" and not error.unheard
                if nobody_there or harmful or not retries.wait(error.retry_after):
                    raise
                if PATIENCE - retries.left > polling.TELL_SECONDS:
                    self._tell_of_silence(error)

    def _tell_of_silence(self, error: Exception | None) -> None:
        """Tell the user, once, that the API server has been silent for a while, or that it no longer is."""
        silent = error is not None
        with self._lock:
            if silent != self._told:
                log.warning("%s", f"{error}; trying again" if error else "the API server answers again")
            self._told = silent

    def _ask_once(self, request: Request, read: Callable[[Response], T], seconds: float) -> T:
        try:
            answer = self.transport.request(
                request.method,
                address(request.path, request.query),
                headers={} if request.body is None else {"content-type": request.content_type},
                body=None if request.body is None else json.dumps(request.body),
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds),
            )
            self._answered = True
            if answer.status < 400:
                return read(answer)
            data = answer.data
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._broke = time.monotonic()
            raise errors.unreachable(error, self.context, self.url) from error
        refusal = errors.refused(answer.status, data, self.context, answer.headers.get("retry-after"), request.path)
        if refusal.code == 403 and time.monotonic() - self._broke < SETTLES_SECONDS:
            raise errors.unsettled(refusal)
        raise refusal

    def require_version(self) -> None:
        """Raise a ClusterError if the API server is too old."""
        version = self.get("/version")
        numbers = tuple(int("".join(filter(str.isdigit, version.get(part, "0"))) or 0) for part in ("major", "minor"))
        if numbers < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise errors.ApiError(
                0,
                f'context "{self.context}" runs Kubernetes {version.get("gitVersion")}; tfk8s needs {oldest} or newer',
            )


def address(path: str, query: Query | None = None) -> str:
    """Return a path with its query."""
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (query or {}).items()}
    return path + (f"?{urlencode(words)}" if words else "")


def _object(answer: Response) -> Object:
    return cast(Object, json.loads(answer.data))
