"""Serves the page at 127.0.0.1, below a secret path, to the browsers of this user alone.

Other pages of a browser get nothing: the names of the host and of the origin are checked, so that neither a foreign
page nor a foreign name for 127.0.0.1 (DNS rebinding) reads what is here.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from tfk8s import api, polling
from tfk8s.errors import ClusterError, InvalidInput, Tfk8sError
from tfk8s.features.dashboard.shown_clusters import ShownClusters
from tfk8s.features.dashboard.topics import MAX_BROWSERS, Hub
from tfk8s.sessions.cluster.socket_users import own_clients

ADDRESS = "127.0.0.1"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TIMELINE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"  # of a page without scripts
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_OWN = ("page.css", "page.js", "charts.js")
_UPLOT = ("uPlot.iife.js", "uPlot.min.css")
_PAUSE = 15.0  # seconds after which a silent stream says that it lives
_MOST_CONNECTIONS = 8 * MAX_BROWSERS
_END_TIMEOUT = 2.0


class Dashboard:
    """The page, on threads, in a `with`.

    Args:
        shown: what the page shows.
        listener: listens on 127.0.0.1.
        token: the secret path.
    """

    def __init__(self, shown: ShownClusters, listener: socket.socket, token: str) -> None:
        self._hub, self._listener, self._token = Hub(shown.find), listener, token
        self._port: int = listener.getsockname()[1]
        config = uvicorn.Config(
            self._guarded(self._app()), log_config=None, access_log=False, server_header=False, lifespan="off",
            limit_concurrency=_MOST_CONNECTIONS, http=_OwnConnection, ws="none",
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="tfk8s-dashboard", daemon=True
        )

    @property
    def url(self) -> str:
        """The address of the page, which nobody can guess."""
        return f"http://{ADDRESS}:{self._port}/{self._token}/"

    def __enter__(self) -> Dashboard:
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # else Python prints what others send
        self._thread.start()
        polling.wait_until(lambda: self._server.started or not self._thread.is_alive(), "the page to start", 30)
        if not self._server.started:
            raise ClusterError("the page's server has ended")
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.close()
        self._server.should_exit = self._server.force_exit = True  # streams do not end by themselves
        self._thread.join(_END_TIMEOUT)
        self._listener.close()

    def wait(self) -> None:
        """Wait until the server ends, which it does not by itself."""
        while self._thread.is_alive():
            self._thread.join(1)

    def _app(self) -> Starlette:
        top = f"/{self._token}"
        return Starlette(
            routes=[
                *(Route(top + place, functools.partial(_file, path=path)) for place, path in _paths()),
                Route(f"{top}/stream", self._stream),
                Route(f"{top}/timeline/{{entry}}", _timeline),
            ]
        )

    async def _stream(self, request: Request) -> Response:
        """Send the messages of topics as server-sent events, until the browser leaves."""
        if self._hub.is_full:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_BROWSERS} pages are open already; close some")
        try:
            topics = self._hub.topics(request.query_params.getlist("topic"))
        except InvalidInput as error:
            return _refusal(HTTPStatus.NOT_FOUND, str(error))
        messages = self._hub.messages(topics, _PAUSE)
        return StreamingResponse(_events(messages), media_type="text/event-stream", headers=_HEADERS)

    def _guarded(self, app: Any) -> Any:
        """Return an application that answers to this user's own browsers alone."""
        hosts = {f"{name}:{self._port}" for name in (ADDRESS, "localhost")}
        origins = {f"http://{host}" for host in hosts}

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            request = Request(scope)
            reason = ""
            if request.headers.get("host") not in hosts:
                reason = "the name of the host is another one"
            elif request.headers.get("origin", f"http://{ADDRESS}:{self._port}") not in origins:
                reason = "another page asks"
            elif request.method != "GET":
                reason = "the page can only be read"
            if reason:
                await _refusal(HTTPStatus.FORBIDDEN, reason)(scope, receive, send)
            else:
                await app(scope, receive, send)

        return serve


class _OwnConnection(H11Protocol):
    """A connection, which is closed at once if another user's process has made it; only Linux tells."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        port, peer = transport.get_extra_info("sockname")[1], transport.get_extra_info("peername")[1]
        if not own_clients([peer], port):
            transport.abort()


async def _events(messages: AsyncIterator[str]) -> AsyncIterator[str]:
    async for text in messages:
        yield f"data: {text}\n\n" if text else ": still here\n\n"


def _paths() -> Iterator[tuple[str, Path]]:
    """Yield the files of the page, each with its place below the secret path.

    uPlot's package is not imported: it would import NumPy and IPython.
    """
    spec = importlib.util.find_spec("uplot")
    assert spec is not None
    package = next(iter(spec.submodule_search_locations or ()))
    own, static = Path(__file__).with_name("page"), Path(package, "static")
    yield "/", own / "index.html"
    yield from ((f"/{name}", own / name) for name in _OWN)
    yield from ((f"/{name}", static / name) for name in _UPLOT)


async def _file(_: Request, path: Path) -> Response:
    return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers=_HEADERS)


async def _timeline(request: Request) -> Response:
    """Return the timeline of an entry of the history, a page without scripts."""
    try:
        page = await asyncio.to_thread(_read_timeline, request.path_params["entry"])
    except FileNotFoundError:
        return _refusal(HTTPStatus.NOT_FOUND, "the entry has no timeline")
    except (Tfk8sError, OSError) as error:
        return _refusal(HTTPStatus.NOT_FOUND, str(error))
    return Response(page, media_type="text/html", headers={**_HEADERS, "Content-Security-Policy": _TIMELINE_POLICY})


def _read_timeline(entry: str) -> bytes:
    past = api.past(entry)
    if past is None:
        raise InvalidInput(f"the history has no entry {entry}")
    page: bytes = past.files.read_timeline()
    return page


def _refusal(status: HTTPStatus, reason: str) -> Response:
    return PlainTextResponse(f"tfk8s: {reason}\n", status, headers=_HEADERS)
