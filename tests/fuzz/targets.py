"""The parsers of what servers and pods send, each as a function of bytes that returns, or raises an expected error."""

from __future__ import annotations

import contextlib
import io
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast
from unittest import mock

from fakes.web_socket import client_that_opens
from websocket import WebSocketException

from tfk8s.backends import stacks, usage
from tfk8s.backends.kubernetes.api_server import lines, streams, web_sockets
from tfk8s.backends.kubernetes.api_server.commands import RemoteCommand
from tfk8s.backends.kubernetes.scripts import inside_containers, warm_requests
from tfk8s.core.history.records import RecordStream
from tfk8s.core.script import Download, LogOptions
from tfk8s.errors import ClusterError
from tfk8s.log import log
from tfk8s.sessions.cluster.create_session import SessionFields
from tfk8s.sessions.cluster.elastic_requests import FillingStream
from tfk8s.sessions.http2_proxy import ProxiedConnection
from tfk8s.task import probe, wire
from tfk8s.task.files import received
from tfk8s.task.programs import archive
from tfk8s.task.programs.folder_writer import InvalidPath
from tfk8s.task.stream import channel

MEMORY = 64 << 20  # the most bytes that a parser may use
SECONDS = 5.0  # the most time

_WARM_POD = {"metadata": {"namespace": "lab", "name": "demo-warm"}}

Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}


def target(work: Target) -> Target:
    TARGETS[work.__name__] = work
    return work


class Stream:
    """A socket whose peer sends given bytes in parts, and then ends. The first byte is the size of a part."""

    def __init__(self, data: bytes) -> None:
        size = 1 + (data[0] if data else 0)
        size = size if size < 255 else 1 << 20
        self._data, self._size, self._position = data[1:], size, 0

    @property
    def is_over(self) -> bool:
        return self._position >= len(self._data)

    def recv(self, size: int, *_: object) -> bytes:
        end = self._position + min(size, self._size)
        part, self._position = self._data[self._position : end], end
        return part

    def recv_into(self, buffer: memoryview) -> int:
        part = self.recv(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def setsockopt(self, *_: object) -> None:
        """Take any option."""

    def send(self, data: bytes) -> int:
        return len(data)

    def sendall(self, data: bytes) -> None:
        """Take all."""

    def shutdown(self, _: int) -> None:
        """Do nothing."""

    settimeout = setblocking = shutdown

    def close(self) -> None:
        """Do nothing."""


def as_socket(data: bytes) -> socket.socket:
    return cast(socket.socket, Stream(data))


@target
def answer(data: bytes) -> None:
    """An answer of a server to GetStatus."""
    with contextlib.suppress(wire.ProbeError, OSError):
        probe.get_status(as_socket(data), SECONDS)


@target
def devices(data: bytes) -> None:
    """The message with all devices."""
    with contextlib.suppress(wire.ProbeError):
        probe.all_devices(data)


@target
def version(data: bytes) -> None:
    """A refusal with the server's version."""
    with contextlib.suppress(wire.ProbeError, OSError):
        probe.get_version(as_socket(data), "/job:a/task:0", SECONDS)


@target
def forward(data: bytes) -> None:
    """A server behind a forward, and a client that a hostile program plays: the connection ends."""
    ends: list[None] = []
    connection = ProxiedConnection(Stream(b"\xff" + data), Stream(data))
    connection.carry_downstream(lambda: ends.append(None))
    connection.carry_upstream(lambda: ends.append(None))
    connection.abort_calls("lost", 0.0)
    assert len(ends) == 2


@target
def filling(data: bytes) -> None:
    """The master of an elastic cluster behind a forward."""
    master = as_socket(data)
    stream = FillingStream(master, lambda: SessionFields({"worker/0": "w:1"}, "worker/0"))
    with contextlib.suppress(wire.ProbeError, OSError):
        stream.sendall(wire.request_frames(wire.CREATE_SESSION, wire.field(1, b"graph" * 20_000)))
        buffer = memoryview(bytearray(1 << 18))
        while stream.recv_into(buffer):
            pass


@target
def upload(data: bytes) -> None:
    """A program that sends anything to the master of an elastic cluster."""
    server = as_socket(b"\x00")
    stream = FillingStream(server, lambda: SessionFields({"worker/0": "w:1"}, "worker/0"))
    source = Stream(data)
    with contextlib.suppress(wire.ProbeError, OSError):
        stream.sendall(wire.PREFACE)
        while part := source.recv(1 << 18):
            stream.sendall(part)


@target
def warm_pod(data: bytes) -> None:
    """The frames of a warm pod, or of a client."""
    with contextlib.suppress(OSError):
        channel.hear_hello(as_socket(data))
    one, stream = channel.Channel(), Stream(data)
    one.attach(cast(socket.socket, stream), 0)
    one.send(channel.OUTPUT, b"x")
    with contextlib.suppress(channel.Damaged):
        while one.connection is not None:
            one.read()
            one.acknowledge()


class _Connection(Stream):
    def gettimeout(self) -> float:
        return SECONDS

    def setsockopt(self, *_: int) -> None:
        """Do nothing."""


@target
def web_socket(data: bytes) -> None:
    """The messages of a command in a pod."""
    opened = web_sockets.BoundedWebSocket()
    opened.sock, opened.connected = cast(socket.socket, _Connection(data)), True
    with contextlib.suppress(ClusterError), RemoteCommand(client_that_opens(opened), "ns", "pod", ["run"]) as command:
        while command.exit_code is None:
            command.receive()


@target
def web_socket_answer(data: bytes) -> None:
    """The answer to a WebSocket's request."""
    with contextlib.suppress(OSError, WebSocketException):
        web_sockets.open_web_socket("ws://h/", cast(socket.socket, _Connection(data)), [], SECONDS)


@target
def log_lines(data: bytes) -> None:
    """A log, or the events of a watch."""
    stream = Stream(data)
    parts = list(iter(lambda: stream.recv(1 << 16), b""))
    assert b"\n".join(lines.split(parts, limit=1 << 20)).rstrip(b"\n") == data[1:].rstrip(b"\n")


@target
def warm_log(data: bytes) -> None:
    """The log of a script in a warm pod, after the pod's first frame."""
    near, far = socket.socketpair()
    with far, mock.patch.object(streams, "dial", return_value=near):
        channel.say_hello(far, {"received": 0})
        far.sendall(data[1 : 1 << 16])
        far.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ClusterError):
            for line in warm_requests.lines(None, _WARM_POD, "script-1", LogOptions(follow=True)):  # type: ignore[arg-type]
                assert "\n" not in line


@target
def downloads(data: bytes) -> None:
    """The archive of `--get`."""
    with _folder() as folder, contextlib.suppress(ClusterError):
        received.receive(io.BytesIO(data), [Download("model", folder / "inside/model")])
        _check(folder)


@target
def script_archive(data: bytes) -> None:
    """The archive of a script's folder, in a pod."""
    with _folder() as folder, contextlib.chdir(folder / "inside"):
        Path("sent").write_bytes(data)
        with contextlib.suppress(tarfile.TarError, InvalidPath, OSError):
            archive.unpack(Path("sent"))
        _check(folder)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    log.disabled = True  # links are warnings
    try:
        (folder / "inside").mkdir()
        yield folder
    finally:
        log.disabled = False
        shutil.rmtree(folder)


def _check(folder: Path) -> None:
    assert [path.name for path in folder.iterdir()] == ["inside"]


@target
def looks_into_containers(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        documents = inside_containers.parse_answer(data)
        for found in (stacks.parse("a", documents), usage.parse("a", documents)):
            str(found)


@target
def shared_records(data: bytes) -> None:
    """The records of a shared history, which others have written."""
    with contextlib.suppress(ValueError):
        for record in RecordStream(io.BytesIO(data)).records(30):
            assert record.problem.isprintable()
