"""A server of HTTP that answers as a test says: the truth, or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

Answer = Callable[[BaseHTTPRequestHandler], None]


class LyingServer(ThreadingHTTPServer):
    """The server.

    Attributes:
        answer: writes the answer to a request.
        asked: the methods and targets of requests.
        bodies: what was sent with them.
        headers: those of the last request.
        done: set when the test ends.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.bodies: list[bytes] = []
        self.headers: dict[str, str] = {}
        self.done = threading.Event()
        self.answer: Answer = text(404, "")
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LyingServer

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client has cut the connection
            self.close_connection = True

    def _answer(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.bodies.append(self.rfile.read(int(self.headers.get("content-length", 0))))
        self.server.answer(self)

    do_GET = do_PUT = do_POST = do_DELETE = do_CONNECT = _answer  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        pass


def text(status: int, content: str, length: int | None = None, **headers: str) -> Answer:
    """Return an answer with a content, and perhaps another length than it has."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("content-length", str(len(content.encode()) if length is None else length))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content.encode())
        handler.close_connection = length is not None

    return answer


@pytest.fixture
def lying_server() -> Iterator[LyingServer]:
    with LyingServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.done.set()
        server.shutdown()
        thread.join()
