"""The clients of a task's server, from the kernel's tables of connections."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfk8s import polling
from tfk8s.task import activity
from tfk8s.task.activity import Clients, Connection

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 20 1 0 100 0 0 10 0
   1: 0500000A:08AE 0700000A:C000 01 00000000:00000000 00:00000000 00000000  1000        0 21 1 0 20 4 30 10 -1
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when
   0: 0000000000000000FFFF00000500000A:08AE 0000000000000000FFFF00000800000A:C003 01 0:0 0:0 0  1002        0 26 1
   1: 000080FE00000000FF005450B6AE1DFE:08AE 000080FE00000000FF005450B7AE1DFE:C004 01 0:0 0:0 0  1003        0 27 1
   2: 0000000000000000FFFF00000500000A:C005 0000000000000000FFFF00000600000A:08AE 01 0:0 0:0 0  1003        0 28 1
   3: 0000000000000000FFFF00000500000A:08AE 0000000000000000FFFF00000900000A:C006 06 0:0 0:0 0  1003        0 0 1
"""

little_endian = pytest.mark.skipif(sys.byteorder == "big", reason="the tables are a little-endian machine's")
linux = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells")


@little_endian
def test_established_connections() -> None:
    assert list(activity.connections(TCP + TCP6)) == [
        Connection("10.0.0.5", 2222, "10.0.0.7", 49152, 21),
        Connection("10.0.0.5", 2222, "10.0.0.8", 49155, 26),
        Connection("fe80::5054:ff:fe1d:aeb6", 2222, "fe80::5054:ff:fe1d:aeb7", 49156, 27),
        Connection("10.0.0.5", 49157, "10.0.0.6", 2222, 28),
    ]


@little_endian
def test_a_client_is_remembered_after_its_end_but_a_probe_is_none() -> None:
    clients = Clients(2222)
    clients.look(TCP, 100)
    assert clients.ages(100) == {}  # kubelet's probes are seen once
    clients.look(TCP, 100.1)
    assert clients.ages(100.1) == {}  # the same probe, as somebody asks
    clients.look(TCP + TCP6, 101)
    clients.look(TCP6, 102)
    clients.look("", 103)
    assert clients.ages(105) == {"10.0.0.7": 4, "10.0.0.8": 3, "fe80::5054:ff:fe1d:aeb7": 3}


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@linux
def test_a_task_tells_who_is_connected(server: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert activity.ask("127.0.0.1", port, 1) is None
    threading.Thread(target=activity.serve, args=(port, server.getsockname()[1]), daemon=True).start()
    polling.wait_until(lambda: activity.ask("127.0.0.1", port, 1) == {}, "an answer", 5)
    with socket.create_connection(server.getsockname()):
        polling.wait_until(lambda: "127.0.0.1" in (activity.ask("127.0.0.1", port, 1) or {}), "the client", 5)


@linux
def test_a_task_answers_after_a_failed_connection(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")]

    def accept_next(listener: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accept_next)
    threading.Thread(target=activity.serve, args=(port, server.getsockname()[1]), daemon=True).start()
    polling.wait_until(lambda: activity.ask("127.0.0.1", port, 1) == {}, "an answer", 5)
    assert not failures


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0\r\n", b"[]", b'{"10.0.0.1": []}', b'{"10.0.0.1": 1' + b"0" * 400 + b"}", b"[" * 100_000]
)
def test_another_programs_answer_is_none(server: socket.socket, answer: bytes) -> None:
    def send() -> None:
        stream, _ = server.accept()
        stream.sendall(answer)
        stream.close()

    threading.Thread(target=send, daemon=True).start()
    assert activity.ask(*server.getsockname(), 1) is None


def send_without_end(server: socket.socket, part: bytes, end: threading.Event, interval: float) -> None:
    stream, _ = server.accept()
    with stream, contextlib.suppress(OSError):
        while not end.wait(interval):
            stream.sendall(part)


@pytest.mark.parametrize(("part", "interval", "timeout"), [(b" ", 0.01, 0.1), (b" " * 100_000, 0, 30)])
def test_an_answer_without_an_end_is_none(server: socket.socket, part: bytes, interval: float, timeout: float) -> None:
    end, answers = threading.Event(), []
    threading.Thread(target=send_without_end, args=(server, part, end, interval), daemon=True).start()
    asker = threading.Thread(target=lambda: answers.append(activity.ask(*server.getsockname(), timeout)), daemon=True)
    asker.start()
    asker.join(5)
    in_time = list(answers)
    end.set()
    assert in_time == [None]


def test_ages_are_not_negative(server: socket.socket) -> None:
    def send() -> None:
        stream, _ = server.accept()
        stream.sendall(b'{"a": -Infinity, "b": NaN, "c": 2}')
        stream.close()

    threading.Thread(target=send, daemon=True).start()
    assert activity.ask(*server.getsockname(), 1) == {"a": 0, "b": 0, "c": 2}
