"""A proxy before the API server that writes down what is asked of it."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path
from types import TracebackType

import yaml
from kube_api import KubeApi

_HOP_BY_HOP = ("connection", "transfer-encoding", "content-length", "host")


class Recorder:
    """Passes requests on in a client's name, in a `with`; those that stream both ways, such as `exec`, are refused.

    Attributes:
        requests: method and path of each, in order.
    """

    def __init__(self, client: KubeApi) -> None:
        self.requests: list[tuple[str, str]] = []
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                recorder.requests.append((self.command, self.path))
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                content_type = self.headers.get("content-type", "application/json")
                answer = client.request(
                    self.command, self.path, body=json.loads(body or "null"), content_type=content_type
                )
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in _HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("content-length", str(len(answer.data)))
                self.end_headers()
                self.wfile.write(answer.data)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = pass_on  # noqa: N815 - the base's names

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def writes(self) -> list[str]:
        """What was asked that is no read: method and kind of object."""
        return [f"{method} {_kind(path)}" for method, path in self.requests if method != "GET"]

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig that leads here; return its path."""
        server = f"http://127.0.0.1:{self._server.server_address[1]}"
        path = folder / "recorded"
        path.write_text(
            yaml.safe_dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "recorded", "users": [],
                "clusters": [{"name": "recorded", "cluster": {"server": server}}],
                "contexts": [{"name": "recorded", "context": {"cluster": "recorded", "user": ""}}],
            })
        )  # fmt: skip
        return path

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _kind(path: str) -> str:
    parts = path.partition("?")[0].split("/")
    return parts[parts.index("namespaces") + 2]
