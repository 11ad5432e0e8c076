"""A server elsewhere: in another network of this machine, with the names and certificates of the Internet's.

`python elsewhere.py FOLDER` is that server. Any path leads to the file of FOLDER with its last part as the name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tfk8s import polling

# pytest-xdist may give tests of one module to two processes, whose networks must not meet.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_NETWORK = f"198.18.{_WORKER}"  # of measurements (RFC 2544): a machine may have others as its own
HERE, THERE, LATER = f"{_NETWORK}.254", f"{_NETWORK}.1", f"{_NETWORK}.253"
NAMES = ("storage.googleapis.com", "www.googleapis.com", "packages.example", "s3.example", "models.example")
_DEVICE = f"tfk8s-test{_WORKER}"


@dataclass(frozen=True)
class Elsewhere:
    """The server, and what reaches it by its names.

    Attributes:
        folder: its files.
        authority: the certificate that its own is signed with.
        hosts: a file as /etc/hosts with its names.
    """

    folder: Path
    authority: Path
    hosts: Path

    def wrapped(self, command: Sequence[str]) -> list[str]:
        """Return a command that knows the names."""
        mount = f'mount --make-rprivate / && mount --bind {self.hosts} /etc/hosts && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", mount, "sh", *command]


def missing() -> str:
    """Return why this machine can't have a network elsewhere, or ""."""
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    made = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return "needs root that may make namespaces" if made.returncode else ""


@contextlib.contextmanager
def elsewhere(folder: Path) -> Iterator[Elsewhere]:
    """Run the server, with a cable from this machine's own network to its network."""
    import trustme

    authority, files = trustme.CA(), folder / "files"
    files.mkdir()
    found = Elsewhere(files, folder / "authority.pem", folder / "hosts")
    authority.cert_pem.write_to_path(str(found.authority))
    authority.issue_cert(*NAMES).private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    found.hosts.write_text(f"127.0.0.1 localhost\n{THERE} {' '.join(NAMES)}\n")
    command = ["unshare", "--net", sys.executable, __file__, str(files)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.readline() == "entered\n"
            ip("link", "add", _DEVICE, "type", "veth", "peer", "name", "eth0", "netns", str(server.pid))
            ip("address", "add", f"{HERE}/24", "dev", _DEVICE)
            ip("link", "set", _DEVICE, "up")
            server.stdin.write("connected\n")
            server.stdin.flush()
            assert server.stdout.readline() == "ready\n"
            polling.wait_until(_answers, "the server elsewhere to answer", 60)
            yield found
        finally:
            server.kill()  # its network goes with it, and the cable


def ip(*arguments: str) -> None:
    """Run ip(8)."""
    subprocess.run(["ip", *arguments], check=True, timeout=60)


@contextlib.contextmanager
def later_address() -> Iterator[None]:
    """In a `with`, give this machine another address."""
    ip("address", "add", f"{LATER}/24", "dev", _DEVICE)
    try:
        yield
    finally:
        ip("address", "delete", f"{LATER}/24", "dev", _DEVICE)


def _answers() -> bool:
    with contextlib.suppress(OSError), socket.create_connection((THERE, 443), timeout=1):
        return True
    return False


class _Files(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder = Path()

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).rstrip("/")
        file = self.folder / Path(path).name
        if not file.is_file():
            self._answer(404, b"not here")
        elif path.startswith("/storage/v1/b/") and "alt=media" not in self.path:  # Cloud Storage's API
            about = {"size": str(file.stat().st_size), "generation": "1", "updated": "2024-01-01T00:00:00.000Z"}
            self._answer(200, json.dumps(about).encode())
        else:
            self._send_part(file.read_bytes())

    do_HEAD = do_GET  # noqa: N815 - the handler's name

    def _send_part(self, data: bytes) -> None:
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if part is None:
            self._answer(200, data)
            return
        first, last = int(part[1]), min(int(part[2] or len(data)), len(data) - 1)
        if first > last:
            self._answer(416, b"")
        else:
            self._answer(206, data[first : last + 1], f"bytes {first}-{last}/{len(data)}")

    def _answer(self, code: int, data: bytes, place: str = "") -> None:
        self.send_response(code)
        if place:
            self.send_header("Content-Range", place)
        for name, value in (
            ("Content-Length", str(len(data))), ("Content-Type", "text/html"), ("ETag", f'"{"a" * 40}"'),
            ("X-Repo-Commit", "b" * 40), ("Accept-Ranges", "bytes"), ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _main(folder: Path) -> None:
    sys.stdout.write("entered\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for device in ("lo", "eth0"):
        ip("link", "set", device, "up")
    ip("address", "add", f"{THERE}/24", "dev", "eth0")
    _Files.folder = folder
    plain, secure = (ThreadingHTTPServer(("0.0.0.0", port), _Files) for port in (80, 443))  # noqa: S104 - all is its own
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder.parent / "server.pem")
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    threading.Thread(target=plain.serve_forever, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    secure.serve_forever()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
