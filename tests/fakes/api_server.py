"""A small Kubernetes API server on loopback, with faults: enough for `up`, `status` and `down`."""

from __future__ import annotations

import copy
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tfk8s.backends.kubernetes.api_server import paths

Object = dict[str, Any]
Fault = Callable[["Handler", Callable[[], None]], None]  # gets a request, and a function that serves the request

_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: fake
contexts: [{{name: fake, context: {{cluster: fake, user: me, namespace: here}}}}]
clusters: [{{name: fake, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{token: secret}}}}]
"""


@dataclass
class ApiServer:
    """An API server whose objects are data.

    Attributes:
        objects: the objects, by path.
        requests: the requests so far, as "GET /path".
        faults: the faults, by the number of the request from 0.
        always: the fault of every other request; None for no fault.
        history: the events of watches, each with its version.
        logs: the lines of a pod's log, each with its time.
        versions: the versions of groups besides that of Kubernetes 1.29 and later.
        port: of 127.0.0.1.
        has_controllers: StatefulSets have pods.
    """

    objects: dict[str, Object] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    faults: dict[int, Fault] = field(default_factory=dict)
    always: Fault | None = None
    history: list[tuple[int, Object]] = field(default_factory=list)
    logs: dict[str, list[str]] = field(default_factory=dict)
    versions: tuple[str, ...] = ()
    version: int = 1
    port: int = 0
    has_controllers: bool = True
    changed: threading.Condition = field(default_factory=threading.Condition)
    closing: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> ApiServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, on the same port as before."""
        self.closing.clear()
        self._server = _listen(self.port)
        self._server.api = self
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig of this server; return its path."""
        path = folder / "kubeconfig"
        path.write_text(_KUBECONFIG.format(port=self.port))
        return path

    def stop(self) -> None:
        """Stop listening, and end all connections."""
        self.closing.set()
        with self.changed:
            self.changed.notify_all()
        self._server.shutdown()
        self._server.close_all()

    def put(self, path: str, thing: Object) -> Object:
        """Create or change an object; return the new object."""
        with self.changed:
            old = self.objects.get(path)
            new = self.complete(path, thing)
            if old is None or {**old, "metadata": None} != {**new, "metadata": None}:
                self._note(new, "MODIFIED" if old else "ADDED", path)
                self.objects[path] = new
            return self.objects[path]

    def complete(self, path: str, thing: Object) -> Object:
        """Return an object with what an API server adds."""
        uid = f"uid-{self.version}"
        added = {"creationTimestamp": "2026-01-01T00:00:00Z", "uid": uid, "generation": 1, "namespace": "here"}
        old, resource = self.objects.get(path, {}), paths.resource(path)
        assert resource
        if resource.kind == "Node":
            del added["namespace"]
        status = {"status": old.get("status", {})} if resource.kind in _WITH_STATUS else {}
        new = {"kind": resource.kind, **status, **copy.deepcopy(thing)}
        if resource.kind == "Pod":
            new["spec"] = {"restartPolicy": "Always", **new["spec"]}
        return {**new, "metadata": {**added, **old.get("metadata", {}), **new["metadata"]}}

    def remove(self, path: str) -> None:
        """Delete an object, and the pods of a StatefulSet."""
        with self.changed:
            gone = self.objects.pop(path, None)
            if gone is not None:
                self._note(gone, "DELETED", path)

    def _note(self, thing: Object, kind: str, path: str) -> None:
        self.version += 1
        thing["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, {"type": kind, "object": copy.deepcopy(thing), "path": path}))
        self.changed.notify_all()

    def make_pods(self) -> None:
        """Act as the controllers: have a ready pod for each task of each StatefulSet, and no other pods of tasks."""
        if not self.has_controllers:
            return
        wanted = {}
        for path, made in list(self.objects.items()):
            if "/statefulsets/" not in path:
                continue
            for index in range(made["spec"]["replicas"]):
                name = f"{made['metadata']['name']}-{index}"
                template = made["spec"]["template"]
                metadata = {"namespace": "here", **template["metadata"], "name": name}
                wanted[f"/api/v1/namespaces/here/pods/{name}"] = {
                    "metadata": metadata, "status": _ready(),
                    "spec": {**template["spec"], "nodeName": "node"},
                }  # fmt: skip
        for path in [path for path in self.objects if "/pods/" in path and path not in wanted]:
            if "session-script" not in json.dumps(self.objects[path]):
                self.remove(path)
        for path, pod in wanted.items():
            if path not in self.objects:
                self.put(path, pod)

    def listed(self, collection: str, selector: str) -> list[tuple[str, Object]]:
        return [
            (path, thing)
            for path, thing in sorted(self.objects.items())
            if path.rpartition("/")[0] == collection and _selects(selector, thing)
        ]


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    api: ApiServer

    def __init__(self, *arguments: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, address)

    def handle_error(self, request: Any, address: Any) -> None:
        """Print nothing: broken connections are intended."""

    def close_all(self) -> None:
        self.server_close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _listen(port: int) -> _Server:
    """Return a server at a port of 127.0.0.1; 0 for a free one that is reached.

    A container engine may send the connections of a free port to a container: the kernel counts no listener there.
    """
    while True:
        server = _Server(("127.0.0.1", port), Handler)
        server.socket.settimeout(5)
        try:
            with socket.create_connection(server.server_address[:2], timeout=5):
                server.get_request()[0].close()
        except OSError:
            server.server_close()
            if port:
                raise
        else:
            server.socket.settimeout(None)
            return server


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    @property
    def api(self) -> ApiServer:
        return self.server.api

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def _do(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        self.body = json.loads(self.rfile.read(length)) if length else None
        with self.api.changed:
            number = len(self.api.requests)
            self.api.requests.append(f"{self.command} {self.path}")
            fault = self.api.faults.pop(number, self.api.always)
        if fault is None:
            self.serve()
        else:
            fault(self, self.serve)

    do_GET = do_POST = do_PATCH = do_DELETE = _do  # noqa: N815 - the standard library's names

    def serve(self) -> None:
        """Serve the request."""
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if query.get("watch") == "true":
            self.stream(self._events(parts.path, query))
        elif parts.path.endswith("/log"):
            self._log(parts.path, query)
        else:
            self.answer(*self._object(self.command, parts.path, query))

    def answer(self, code: int, body: Object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self, lines: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in lines:
            self.chunk(f"{line}\n")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _object(self, method: str, path: str, query: dict[str, str]) -> tuple[int, Object]:
        api, selector = self.api, query.get("labelSelector", "")
        if path == "/apis":
            versions = [{"groupVersion": version} for version in ("flowcontrol.apiserver.k8s.io/v1", *api.versions)]
            return 200, {"groups": [{"versions": versions}]}
        is_collection = path.rpartition("/")[2] in _COLLECTIONS
        if method == "POST":
            metadata = self.body["metadata"]
            name = metadata.setdefault("name", f"{metadata.get('generateName')}abcde")
            path = f"{path}/{name}"
        if method == "POST" and path in api.objects:
            return 409, _status("AlreadyExists")
        if method in ("PATCH", "POST") and query.get("dryRun"):
            return 200, api.complete(path, self.body)
        if method in ("PATCH", "POST"):
            return 200 if method == "PATCH" else 201, api.put(path, self.body)
        if method == "DELETE":
            for one in [one for one, _ in api.listed(path, selector)] if is_collection else [path]:
                api.remove(one)
            api.make_pods()
            return 200, {}
        if is_collection:
            api.make_pods()
            items = [thing for _, thing in api.listed(path, selector)]
            return 200, {"kind": "List", "metadata": {"resourceVersion": str(api.version)}, "items": items}
        return (200, api.objects[path]) if path in api.objects else (404, _status("NotFound"))

    def _events(self, path: str, query: dict[str, str]) -> Iterator[str]:
        told = int(query["resourceVersion"])
        while not self.api.closing.is_set():
            with self.api.changed:
                news = [(version, event) for version, event in self.api.history if version > told]
                if not news:
                    self.api.changed.wait(0.05)
                    if query.get("once"):
                        return
            for version, event in news:
                told = version
                if event["path"].rpartition("/")[0] == path:
                    yield json.dumps({"type": event["type"], "object": event["object"]})

    def _log(self, path: str, query: dict[str, str]) -> None:
        lines = self.api.logs.get(path.split("/")[-2], [])
        self.stream(line for line in lines if line >= query.get("sinceTime", "")[:19])


_COLLECTIONS = {
    "jobs", "statefulsets", "poddisruptionbudgets", "services", "configmaps", "secrets", "networkpolicies", "pods",
    "events", "nodes", "persistentvolumeclaims",
}  # fmt: skip

_WITH_STATUS = {"Job", "Node", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "Service", "StatefulSet"}


def _ready() -> Object:
    state = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}
    container = {"name": "server", "state": state, "ready": True, "restartCount": 0, "image": "x"}
    return {"phase": "Running", "containerStatuses": [container]}


def _selects(selector: str, thing: Object) -> bool:
    labels = thing.get("metadata", {}).get("labels", {})
    for term in filter(None, selector.split(",")):
        name, equal, value = term.partition("=")
        if equal and (labels.get(name.rstrip("!")) == value) == name.endswith("!"):
            return False
    return True


def _status(reason: str) -> Object:
    return {"kind": "Status", "status": "Failure", "reason": reason, "message": reason}


# ---- faults --------------------------------------------------------------------------------------------------------


def refuses(code: int, **headers: str) -> Fault:
    """Return a fault that responds with this code only."""
    return lambda handler, serve: handler.answer(code, _status("Faulty"), headers)


def hangs_up(handler: Handler, serve: Callable[[], None]) -> None:
    """End the connection without serving the request."""
    handler.hang_up()


def loses_the_answer(handler: Handler, serve: Callable[[], None]) -> None:
    """Serve the request, and end the connection before the response."""
    written, handler.wfile = handler.wfile, _Nowhere()
    serve()
    handler.wfile = written
    handler.hang_up()


def cuts_the_answer(handler: Handler, serve: Callable[[], None]) -> None:
    """Serve the request, and end the connection in the middle of the response."""
    written, handler.wfile = handler.wfile, _Nowhere()
    serve()
    data, handler.wfile = handler.wfile.data, written
    written.write(data[: len(data) - 5])
    handler.hang_up()


def answers_half_an_object(handler: Handler, serve: Callable[[], None]) -> None:
    """Serve the request with half an object in a complete HTTP response."""
    written, handler.wfile = handler.wfile, _Nowhere()
    serve()
    data, handler.wfile = handler.wfile.data, written
    body = data.partition(b"\r\n\r\n")[2]
    half = body[: len(body) // 2 or 1]
    written.write(b"HTTP/1.1 200 OK\r\ncontent-length: " + str(len(half)).encode() + b"\r\n\r\n" + half)


def stalls(handler: Handler, serve: Callable[[], None]) -> None:
    """Never respond."""
    handler.api.closing.wait(60)
    handler.hang_up()


class _Nowhere:
    """A file in memory."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)

    def flush(self) -> None:
        """Nothing to do."""
