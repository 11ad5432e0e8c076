"""The page of TensorBoard on this machine: its port, and the wait for its server."""

from __future__ import annotations

import contextlib
import http.server
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from job_files import job_file

from tfk8s.cluster.handle import Cluster
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.features.tensorboard import here as pages
from tfk8s.features.tensorboard.here import Page, choose_port, serve
from tfk8s.sessions.forward import listen
from tfk8s.sessions.pod import tensorboard
from tfk8s.testing import FakeBackend


@pytest.fixture(autouse=True)
def ask_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "START_INTERVAL", 0.01)


class Server:
    """A server whose life a test decides."""

    folder = "logs"

    def __init__(self, polls: int) -> None:
        self.polls, self.messages = polls, 0

    def require_running(self) -> None:
        self.polls -= 1
        if self.polls < 0:
            raise ClusterError("TensorBoard was ended: its pod was deleted")

    def show_messages(self) -> None:
        self.messages += 1


class Runs(http.server.BaseHTTPRequestHandler):
    """TensorBoard's list of runs, from the second request on."""

    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        self.send_response(200 if len(self.requests) > 1 else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextlib.contextmanager
def page_server(port: int) -> Iterator[int]:
    Runs.requests = []
    with http.server.HTTPServer(("127.0.0.1", port), Runs) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def port() -> Iterator[int]:
    with page_server(0) as port:
        yield port


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no users")
def test_another_user_who_takes_the_port_gets_no_secret(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(InvalidInput, match=f"^port {port} was taken by another user's process"):
        Page(Server(polls=2), port, "secret").wait_until_ready()
    assert Runs.requests == []


def test_page_is_ready_when_its_server_answers(port: int) -> None:
    server = Server(polls=2)
    page = Page(server, port, "secret")
    page.wait_until_ready()
    assert Runs.requests == ["/secret/data/runs"] * 2
    assert server.messages == 1
    assert page.url == f"http://127.0.0.1:{port}/secret/"
    with pytest.raises(ClusterError, match=r"^TensorBoard was ended: its pod was deleted$"):
        page.wait()


def test_a_backend_serves_a_page() -> None:
    class Backend(FakeBackend):
        @contextlib.contextmanager
        def tensorboard(self, name: str, **asked: Any) -> Iterator[Server]:  # type: ignore[override]
            calls.append((name, asked["folder"], asked["requirements"]))
            with page_server(asked["port"]):
                yield Server(polls=2)

    calls: list[object] = []
    with serve(Cluster(Backend(job_file()), "mnist"), "/logs", __file__, 0) as page:
        assert Runs.requests == [f"{urlsplit(page.url).path}data/runs"] * 2
    assert calls == [("mnist", "/logs", Path(__file__))]


def test_server_that_ends_ends_the_wait() -> None:
    with pytest.raises(ClusterError, match=r"^TensorBoard was ended: its pod was deleted$"):
        Page(Server(polls=1), choose_port(0), "secret").wait_until_ready()


def test_another_port_if_tensorboards_own_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen(0) as used:
        monkeypatch.setattr(tensorboard, "PORT", used.getsockname()[1])
        assert choose_port(0) not in (0, tensorboard.PORT)
    assert choose_port(0) == tensorboard.PORT
