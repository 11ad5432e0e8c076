"""A TCP proxy to an API server that can be cut, and a kubeconfig that leads through the proxy."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from harness.command import PATIENCE


class Proxy:
    """Forwards connections until it is cut or goes dead.

    Args:
        host: the API server's address.
        folder: for the kubeconfig.

    Attributes:
        kubeconfig: the current context's, through this proxy.
    """

    def __init__(self, host: str, folder: Path) -> None:
        parts = urlsplit(host)
        self._server = parts.hostname or "", parts.port or 443
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._flows = threading.Event()
        self._flows.set()
        self._asked = threading.Event()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(self._config(parts.hostname or "")))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _config(self, name: str) -> dict[str, object]:
        places = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
        config = yaml.safe_load(Path(places.split(os.pathsep)[0]).read_text())
        context = next(one["context"] for one in config["contexts"] if one["name"] == config["current-context"])
        for cluster in config["clusters"]:
            if cluster["name"] == context["cluster"]:
                cluster["cluster"]["server"] = f"https://127.0.0.1:{self._port}"
                cluster["cluster"]["tls-server-name"] = name
        return dict(config)

    def cut(self) -> None:
        """Act as an API server that is down: end all connections and refuse new ones."""
        with contextlib.suppress(OSError):  # it is cut already
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would have it accept once more
        self._listener.close()
        self._end_all()

    def go_dead(self) -> None:
        """Act as a network that is gone: keep connections open without forwarding data."""
        self._asked.clear()
        self._flows.clear()

    def until_asked(self) -> None:
        """Wait for a connection while the proxy is dead."""
        assert self._asked.wait(PATIENCE)

    def mend(self) -> None:
        """Forward again, on new and on old connections."""
        if self._listener.fileno() == -1:
            self._listener = socket.create_server(("127.0.0.1", self._port))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self._flows.set()

    def close(self) -> None:
        self._flows.set()
        self.cut()

    def _end_all(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._server) as server:
            self._open += [client, server]
            if not self._flows.is_set():
                self._asked.set()
            back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
            back.start()
            self._pump(client, server)
            back.join()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(1 << 16):
                self._flows.wait()
                sink.sendall(block)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
