"""Requests to the API server, with objects as plain dicts.

API servers restart, refuse requests when they are overloaded, and lose connections. Every request but a POST can be
repeated (`up` is server-side apply), and is retried for `RETRY_TIMEOUT` seconds. A POST is retried only if it had no
effect.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Protocol, TypeVar
from urllib.parse import urlencode

import urllib3

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import answers, errors, lines
from tfk8s.backends.kubernetes.api_server.transport import Response, Transport
from tfk8s.log import log
from tfk8s.render.pods import Object

CONNECT_TIMEOUT = 3.0
READ_TIMEOUT = 6.0
STREAM_TIMEOUT = 10.0  # a stream that is silent for longer may be dead
RETRY_TIMEOUT = 8.0
PAGE_SIZE = 250  # objects in one response
_MAX_PAGES = 800  # Kubernetes has at most 150,000 pods
_NUMBERED = ("PodDisruptionBudget", "PodGroup")
_DELETE_LIMIT = 100  # objects in one request: a busy API server deletes some 30 pods a second
STARTUP_TIMEOUT = 15.0  # an API server that has just started forbids everything until it has read its Roles

MIN_VERSION = (1, 28)  # gives a StatefulSet's pods the label apps.kubernetes.io/pod-index
_SINCE_1_29 = "flowcontrol.apiserver.k8s.io/v1"

APPLY = "application/apply-patch+yaml"
FIELD_MANAGER = "tfk8s"
MERGE = "application/merge-patch+json"

Query = Mapping[str, str | int | bool]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the API server.

    Attributes:
        method, path, query: as in HTTP.
        body: an object, or None.
        content_type: the body's.
        timeout: for the response, and for each part of it; None is `READ_TIMEOUT`.
    """

    method: str
    path: str
    query: Query | None = None
    body: Object | None = None
    content_type: str = "application/json"
    timeout: float | None = None


class Reader(Protocol):
    """Reads from an API server, as `Client` does."""

    context: str
    namespace: str

    def get(self, path: str, query: Query | None = None) -> Object:
        """Return an object, or a list of them."""
        ...

    def text(self, path: str, query: Query | None = None) -> str:
        """Return a text, such as a log."""
        ...


class Client:
    """A client of one API server.

    Args:
        context: a context of the kubeconfig; None is the current context.

    Attributes:
        context: the context's name; "in-cluster" in a pod without a kubeconfig.
        namespace: the context's namespace.
        url: the API server's address.
        transport: connects to the API server.
    """

    def __init__(self, context: str | None) -> None:
        self.transport = Transport(context)
        self.context, self.namespace, self.url = self.transport.context, self.transport.namespace, self.transport.url
        self._has_responded = self._outage_logged = False
        self._lock = threading.Lock()
        self._broken_at = -math.inf  # the time when a connection broke last

    def get(self, path: str, query: Query | None = None) -> Object:
        """Return an object, or the list of the objects that a query selects.

        The list comes in pages, so that thousands of pods are no single response. Managed fields are left out: they are
        almost half of a pod. Without a query, and with a limit in the query, there is one request.
        """
        if not query:
            return self.send("GET", path)
        if "limit" in query:
            return self._list(path, query)
        items: list[Object] = []
        page = {**query, "limit": PAGE_SIZE}
        for _ in range(_MAX_PAGES):
            try:
                answer = self._list(path, page)
            except errors.ApiError as error:
                if error.code != HTTPStatus.GONE or not items:
                    raise
                page, items = dict(query), []  # the pages have expired: all objects at once, as client-go does
                continue
            for item in answer["items"]:
                item["metadata"].pop("managedFields", None)
                items.append(item)
            page["continue"] = answer["metadata"].get("continue", "")
            if not page["continue"]:
                return {**answer, "items": items}
        raise errors.unreachable(answers.invalid("its list does not end"), self.context, self.url)

    def _list(self, path: str, query: Query) -> Object:
        """Return a page of a list."""
        answer = self.send("GET", path, query)
        if not answers.is_list(answer):
            raise errors.unreachable(answers.invalid("its answer is no list of Kubernetes"), self.context, self.url)
        return answer

    def find(self, path: str) -> Object | None:
        """Return an object, or None if it does not exist."""
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
        """Make a request; return the object in the response, or {} if the object to delete does not exist.

        Raises:
            ApiError: the API server refuses.
            BackendUnreachable: the API server does not answer, or can't serve the request now.
        """
        request = Request(method=method, path=path, query=query, body=body, content_type=content_type)
        try:
            return self._send(request, lambda response: answers.parse(answers.body(response), method, path))
        except errors.ApiError as error:
            if (method, error.code) == ("DELETE", 404):
                return {}
            raise

    def delete_all(self, path: str, query: Query) -> None:
        """Delete the objects of a collection, a bounded number in each request.

        An API server deletes them in turn, and responds after the last. A request with a limit responds with the token
        of the next (DeleteCollection in k8s.io/apiserver/pkg/registry/generic/registry/store.go).
        """
        page = {**query, "limit": _DELETE_LIMIT}
        for _ in range(_MAX_PAGES):
            token = (self.send("DELETE", path, page).get("metadata") or {}).get("continue")
            if not token:
                return
            page["continue"] = token
        raise errors.unreachable(answers.invalid("its list does not end"), self.context, self.url)

    def apply(self, path: str, item: Object, *, dry_run: bool = False, force: bool = False) -> Object:
        """Apply an object by server-side apply; return the object that the API server has then.

        The number of a disruption budget or of a PodGroup is taken back from the cluster's own Job and from
        administrators; with `force`, each field from whoever has changed it.
        """
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        query |= {"force": "true"} if force or item["kind"] in _NUMBERED else {}
        return self.send("PATCH", path, query, item, APPLY)

    def text(self, path: str, query: Query | None = None) -> str:
        """Return a text, such as a log."""
        request = Request(method="GET", path=path, query=query)
        return self._send(request, lambda response: answers.body(response).decode(errors="replace"))

    @contextlib.contextmanager
    def lines(self, path: str, query: Query | None = None, timeout: float = STREAM_TIMEOUT) -> Generator[Iterator[str]]:
        """Give the lines of a text while it is written, in a `with`, whose end closes the connection.

        The end is the text's, or a broken connection, or `timeout` seconds of silence. A line that was cut off is
        left out.
        """
        request = Request(method="GET", path=path, query=query, timeout=timeout)
        with contextlib.closing(self._send(request, lambda response: response)) as response:
            if isinstance(response.connection, HTTPConnection) and response.connection.sock is not None:
                response.connection.sock.settimeout(timeout)  # the request had the time that its retries left
            yield self._lines(response)

    def _lines(self, response: Response) -> Iterator[str]:
        try:
            for line in lines.split(response.stream(decode_content=True)):
                yield line.decode(errors="replace")
        except (urllib3.exceptions.HTTPError, OSError):
            self._broken_at = time.monotonic()

    def _send(self, request: Request, read: Callable[[Response], T]) -> T:
        """Send a request, with retries; return the result of `read` for the response."""
        retries = polling.Retries(RETRY_TIMEOUT)
        while True:
            try:
                result = self._send_once(request, read, min(request.timeout or READ_TIMEOUT, max(1.0, retries.left)))
                self._log_outage(None)
                return result
            except (errors.TemporaryApiError, errors.NoResponse) as error:
                never_connected = (
                    not self._has_responded and isinstance(error, errors.NoResponse) and error.had_no_effect
                )
                may_repeat = errors.may_repeat(request.method, request.body, error)
                if never_connected or not may_repeat or not retries.wait(error.retry_after):
                    raise
                if RETRY_TIMEOUT - retries.left > polling.TELL_SECONDS:
                    self._log_outage(error)

    def _log_outage(self, error: Exception | None) -> None:
        """Log the begin of an outage (an error) and its end (None), each once."""
        with self._lock:
            if self._outage_logged == (error is None):
                log.warning("%s", f"{error}; trying again" if error else "the API server answers again")
            self._outage_logged = error is not None

    def _send_once(self, request: Request, read: Callable[[Response], T], timeout: float) -> T:
        try:
            response = self.transport.request(
                request.method,
                add_query(request.path, request.query),
                headers={} if request.body is None else {"content-type": request.content_type},
                body=None if request.body is None else json.dumps(request.body),
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=timeout),
            )
            self._has_responded = True
            if response.status < 400:
                return read(response)
            data = answers.body(response)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._broken_at = time.monotonic()
            raise errors.unreachable(error, self.context, self.url) from error
        retry_after = response.headers.get("retry-after")
        refusal = errors.from_response(response.status, data, self.context, retry_after, request.path)
        if refusal.code == 403 and time.monotonic() - self._broken_at < STARTUP_TIMEOUT:
            raise errors.at_startup(refusal)
        raise refusal

    def require_version(self) -> frozenset[str]:
        """Return the versions of groups that the API server has, such as "apps/v1"; none if the user may not see them.

        They show that an API server is new enough. Only another one is asked for its version.

        Raises:
            ApiError: the API server is too old.
        """
        groups = ()
        with errors.suppress(403):
            groups = self.get("/apis").get("groups", ())
        served = frozenset(version["groupVersion"] for group in groups for version in group["versions"])
        if _SINCE_1_29 not in served:
            self._require_new_enough()
        return served

    def _require_new_enough(self) -> None:
        version = self.get("/version")
        numbers = tuple(int("".join(filter(str.isdigit, version.get(part, "0"))) or 0) for part in ("major", "minor"))
        if numbers < MIN_VERSION:
            oldest = ".".join(map(str, MIN_VERSION))
            raise errors.ApiError(
                0,
                f'context "{self.context}" runs Kubernetes {version.get("gitVersion")}; tfk8s needs {oldest} or newer',
            )


def add_query(path: str, query: Query | None = None) -> str:
    """Return a path with a query."""
    items = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (query or {}).items()}
    return path + (f"{'&' if '?' in path else '?'}{urlencode(items)}" if items else "")
