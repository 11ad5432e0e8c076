"""The forward to a task: its connections, refusals, messages and end."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tfk8s import polling
from tfk8s.errors import InvalidInput, TaskUnreachable
from tfk8s.sessions import forward
from tfk8s.sessions.cluster import socket_users
from tfk8s.sessions.forward import Forward
from tfk8s.task import wire


class Servers:
    """Opens streams, and keeps their other ends."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.dialled = threading.Semaphore(0)

    def dial(self) -> socket.socket:
        here, there = socket.socketpair()
        there.settimeout(60)
        self.ends.append(there)
        self.dialled.release()
        return here

    def next(self) -> socket.socket:
        """The server's end of the next connection."""
        assert self.dialled.acquire(timeout=60)
        return self.ends[-1]


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    for end in servers.ends:
        end.close()


def connect(to: Forward) -> socket.socket:
    return socket.create_connection(("127.0.0.1", to.port), timeout=60)


def received(stream: socket.socket) -> bytes:
    return b"".join(iter(lambda: stream.recv(1 << 16), b""))


def test_http_1_passes_unchanged(servers: Servers) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(range(250)) * 4000
    with Forward(servers.dial) as to, connect(to) as client, client.makefile("rb") as answers:
        server = servers.next()
        for request in (b"GET /data/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
            client.sendall(request)
            assert server.recv(1 << 16) == request
            with ThreadPoolExecutor(1) as pool:
                sending = pool.submit(server.sendall, answer)
                assert answers.read(len(answer)) == answer
                sending.result()


def test_both_directions(servers: Servers) -> None:
    with Forward(servers.dial) as to, connect(to) as client:
        server = servers.next()
        client.sendall(b"question")
        assert server.recv(100) == b"question"
        server.sendall(b"answer")
        assert client.recv(100) == b"answer"


def test_much_data_in_both_directions(servers: Servers) -> None:
    much = os.urandom(1 << 20) * 4
    with Forward(servers.dial) as to, connect(to) as client:
        server = servers.next()
        senders = [threading.Thread(target=stream.sendall, args=(much,)) for stream in (client, server)]
        for sender in senders:
            sender.start()
        for stream in (client, server):
            left = len(much)
            while left:
                left -= len(stream.recv(1 << 20))
        for sender in senders:
            sender.join()


def test_answer_after_the_end_of_the_request(servers: Servers) -> None:
    with Forward(servers.dial) as to, connect(to) as client:
        server = servers.next()
        client.sendall(b"all")
        client.shutdown(socket.SHUT_WR)
        assert received(server) == b"all"
        server.sendall(b"heard")
        server.shutdown(socket.SHUT_WR)
        assert received(client) == b"heard"


def test_end_of_one_side_ends_the_other(servers: Servers) -> None:
    with Forward(servers.dial) as to:
        with connect(to) as client:
            servers.next().close()
            assert client.recv(1) == b""
        with connect(to):
            server = servers.next()
        assert server.recv(1) == b""


def test_each_connection_is_dialled(servers: Servers) -> None:
    with Forward(servers.dial) as to, connect(to) as first, connect(to) as second:
        for client in (first, second):
            client.sendall(b"x")
        servers.next(), servers.next()
        assert [end.recv(1) for end in servers.ends] == [b"x", b"x"]


def test_failed_dials_are_reported_once() -> None:
    def dial() -> socket.socket:
        raise TaskUnreachable("worker/0 does not answer: Connection refused")

    messages: list[str] = []
    with Forward(dial, notify=messages.append) as to:
        for _ in range(2):
            with connect(to) as client:
                assert client.recv(1) == b""
    assert messages == ["worker/0 does not answer: Connection refused"]


def test_broken_and_working_connections_are_reported(servers: Servers) -> None:
    messages: queue.SimpleQueue[str] = queue.SimpleQueue()
    with Forward(servers.dial, notify=messages.put) as to:
        with connect(to) as client:
            server = servers.next()
            server.sendall(b"x")
            assert client.recv(1) == b"x"
            server.close()
            assert messages.get(timeout=5) == (
                "the connection to the task broke: pending calls fail, later calls connect again"
            )
        with connect(to):
            servers.next().close()
            assert messages.get(timeout=5) == "the task does not answer: the connection to it was closed"
        with connect(to) as client:
            servers.next().sendall(b"x")
            assert messages.get(timeout=5) == "the task can be reached again"
        assert received(servers.ends[-1]) == b""
    assert messages.empty()


def test_calls_to_a_stand_in_are_aborted(servers: Servers) -> None:
    messages: list[str] = []
    with Forward(servers.dial, notify=messages.append) as to:
        to.stand_in()
        with connect(to) as client:
            assert client.recv(9) == wire.HEARTBEAT
            client.sendall(wire.request_frames("/tensorflow.MasterService/RunStep", b""))
            polling.wait_until(lambda: to.abort_calls("chief/0 was lost"), "the call", 20)
            assert b"chief/0 was lost" in client.recv(1000)
            to.resume()
            assert client.recv(1) == b""
        with connect(to) as client:
            servers.next().sendall(b"x")
            assert client.recv(1) == b"x"
        assert len(servers.ends) == 1
    assert messages == []


def test_error_of_the_stream_is_reported() -> None:
    def dial() -> socket.socket:
        raise ConnectionResetError(104, "Connection reset by peer")

    messages: list[str] = []
    with Forward(dial, notify=messages.append) as to, connect(to) as client:
        assert client.recv(1) == b""
    assert messages == ["the task does not answer: [Errno 104] Connection reset by peer"]


def test_only_loopback_is_listened_on(servers: Servers) -> None:
    with Forward(servers.dial) as to:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", to.port), timeout=60)
        assert to.target == f"grpc://127.0.0.1:{to.port}"


def test_close_ends_all_connections(servers: Servers) -> None:
    to = Forward(servers.dial)
    with connect(to) as client:
        server = servers.next()
        to.close()
        to.close()
        assert client.recv(1) == b""
        assert server.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(to)


def test_a_connection_that_comes_with_close_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    client, arrived = socket.socketpair()
    closed = threading.Event()

    class Listener:
        def accept(self) -> tuple[socket.socket, tuple[str, int]]:
            if closed.is_set():
                raise OSError("closed")
            return arrived, ("127.0.0.1", 1)

        def settimeout(self, seconds: float | None) -> None:
            if seconds is not None:
                closed.set()
                raise OSError("closed")

        def getsockname(self) -> tuple[str, int]:
            return "127.0.0.1", 2

        def shutdown(self, how: int) -> None:
            closed.set()

        def close(self) -> None:
            closed.set()

    monkeypatch.setattr(forward, "listen", lambda port, *, shared: Listener())
    with client, Forward(socket.socket):
        client.settimeout(10)
        assert client.recv(1) == b""
    assert arrived.fileno() == -1


def test_port_in_use_is_refused(servers: Servers) -> None:
    with Forward(servers.dial) as to:
        with pytest.raises(InvalidInput) as caught:
            Forward(servers.dial, to.port)
        assert str(caught.value) == f"port {to.port} is in use"
        assert caught.value.help == "choose another port, or leave the port out"
        port = to.port
    with Forward(servers.dial, port) as to:
        assert to.port == port


def test_invalid_port_is_refused(servers: Servers) -> None:
    with pytest.raises(InvalidInput) as caught:
        Forward(servers.dial, 70000)
    assert str(caught.value) == "port 70000 can't be listened on: bind(): port must be 0-65535."


def test_a_machine_without_the_address_is_named(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutAddress(socket.socket):
        def bind(self, _: object) -> None:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket, "socket", WithoutAddress)
    with pytest.raises(InvalidInput) as caught:
        Forward(servers.dial)
    assert str(caught.value) == "this machine has no address 127.0.0.1 to listen on"
    assert caught.value.help == "ip address add 127.0.0.1/8 dev lo; ip link set lo up"


def test_connection_of_another_user_is_refused(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch)
    messages: list[str] = []
    with Forward(servers.dial, notify=messages.append) as to, connect(to) as client:
        assert client.recv(1) == b""
    assert messages == [f"refused a connection to port {to.port}: it came from another user's process"]
    assert servers.ends == []


def refuse(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Let all connections be another user's; return a list with an entry for each look at the tables."""
    looks: list[None] = []

    def users(*_: object) -> dict[int, int]:
        looks.append(None)
        return dict.fromkeys(range(1 << 16), os.geteuid() + 1)

    monkeypatch.setattr(socket_users, "peer_users", users)
    return looks


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no users")
def test_many_connections_of_another_user_cost_little(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, messages = refuse(monkeypatch), list[str]()
    monkeypatch.setattr(forward, "PAUSE", 0.01)
    threads = threading.active_count()
    with Forward(servers.dial, notify=messages.append) as to, contextlib.ExitStack() as stack:
        assert received(stack.enter_context(connect(to))) == b""
        clients = [stack.enter_context(connect(to)) for _ in range(100)]
        assert threading.active_count() <= threads + 1
        assert [received(client) for client in clients] == [b""] * 100
        assert len(messages) == 1, "the next one comes after a minute"
        monkeypatch.setattr(forward, "PAUSE", 0.0)
        to._silent_until = 0.0
        assert received(stack.enter_context(connect(to))) == b""
    more = f"refused 101 connections to port {to.port}: they came from other users' processes"
    assert messages[1:] == [more]
    assert len(looks) < 50


def test_a_forward_without_threads_goes_on(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    with Forward(servers.dial) as to:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start := FailingStart())
            with connect(to) as client:
                assert received(client) == b""
        assert start.calls == 1
        with connect(to) as client:
            client.sendall(b"x")
            assert servers.next().recv(1) == b"x"


class FailingStart:
    """A machine that allows no more threads."""

    calls = 0

    def __call__(self, *_: object) -> None:
        self.calls += 1
        raise RuntimeError("can't start new thread")


def test_an_unexpected_failure_of_a_dial_is_reported() -> None:
    def dial() -> socket.socket:
        raise KeyError("status")

    messages: list[str] = []
    with Forward(dial, notify=messages.append) as to, connect(to) as client:
        assert received(client) == b""
        assert messages == ["the task does not answer: KeyError('status')"]


# ---- /proc/net/tcp -------------------------------------------------------------------------------------------------

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 22 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 23 1 0 20 4 30 10 -1
   2: 0100007F:C000 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 24 1 0 20 4 30 10 -1
   3: 0100007F:C001 0100007F:1F90 06 00000000:00000000 03:00000F00 00000000     0        0 0 3 0000000000000000
   4: 0200007F:C002 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 25 1 0 20 4 30 10 -1
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when
   0: 0000000000000000FFFF00000100007F:C003 0000000000000000FFFF00000100007F:1F90 01 0:0 0:0 0  1002        0 26 1
   1: 0000000000000000FFFF00000200007F:C004 0000000000000000FFFF00000100007F:1F90 01 0:0 0:0 0  1003        0 27 1
"""

little_endian = pytest.mark.skipif(sys.byteorder == "big", reason="the tables are a little-endian machine's")


@little_endian
@pytest.mark.parametrize(
    ("port", "user"),
    [
        (0xC000, 1000),
        (0xC001, None),  # closed by its process: it seems to be root's
        (0xC002, None),  # from 127.0.0.2
        (0xC003, 1002),  # a socket for IPv6
        (0xC004, None),
        (0xC005, None),  # not there
    ],
)
def test_user_of_a_connection(port: int, user: int | None) -> None:
    assert socket_users.peer_users(TCP + TCP6, 0x1F90).get(port) == user


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_own_connection_is_in_this_machines_tables(servers: Servers, family: int) -> None:
    with Forward(servers.dial) as to, socket.socket(family) as client:
        client.connect(("127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1", to.port))
        client.sendall(b"x")
        assert servers.next().recv(1) == b"x"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell no users")
def test_the_user_of_a_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    with forward.listen(0) as listener:
        port = listener.getsockname()[1]
        socket_users.require_own_listener(port)
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
        with pytest.raises(InvalidInput) as caught:
            socket_users.require_own_listener(port)
    assert str(caught.value) == f"port {port} was taken by another user's process"
    socket_users.require_own_listener(port)
