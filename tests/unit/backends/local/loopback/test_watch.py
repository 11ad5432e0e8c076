"""The watch over open ports."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tfk8s.backends.local.loopback import sockets, watch
from tfk8s.sessions.forks.event_loop import Loop

OPEN = """
import socket
server = socket.socket()
server.listen()
print(server.getsockname()[1], flush=True)
input()
"""
Process = subprocess.Popen[str]


@pytest.fixture
def process() -> Iterator[Process]:
    """Return a process with an open port; isolated Python reads no PYTHONPATH."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-I", "-c", OPEN], text=True, **pipes) as process:
        yield process
        process.kill()


def port(process: Process) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.fixture
def look(process: Process) -> Callable[[], None]:
    """Return a function that looks once at the ports of the process."""
    return watch.PortWatch(Loop(), lambda: [process.pid])._look


def may_take_sockets() -> bool:
    """Return whether a process may take a socket of another, which Docker's default profile forbids."""
    with socket.socket() as taken:
        try:
            own = os.pidfd_open(os.getpid())
        except OSError:
            return False
        copy = ctypes.CDLL(None).syscall(watch.PIDFD_GETFD, own, taken.fileno(), 0)
    os.close(own)
    if copy >= 0:
        os.close(copy)
    return copy >= 0


@pytest.mark.programs
@pytest.mark.skipif(not may_take_sockets(), reason="pidfd_getfd(2) is forbidden here")
def test_an_open_port_is_bound(process: Process, look: Callable[[], None]) -> None:
    number = port(process)
    assert sockets.trouble(number)
    look()
    assert not sockets.trouble(number)
    with socket.create_connection(("127.0.0.1", number)):
        assert process.poll() is None


@pytest.mark.programs
def test_a_process_whose_port_can_not_be_bound_ends(
    process: Process, look: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PIDFD_GETFD", 1 << 20)  # no system call, as Docker's profile forbids this one
    number = port(process)
    look()
    assert process.stderr is not None
    assert process.stderr.readline() == (
        f"tfk8s: process {process.pid} ends: port {number} is open to other machines, and can't be bound to loopback: "
        "Function not implemented; listen on 127.0.0.1\n"
    )
    assert process.wait(10) == -9


@pytest.mark.programs
def test_a_process_to_which_another_machine_connected_ends(
    process: Process, look: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = port(process)
    monkeypatch.setattr(sockets, "outside_peers", lambda tables, ports: ["10.0.0.7"] if ports == {number} else [])
    look()
    assert process.wait(10) == -9


@pytest.mark.programs
def test_ports_of_programs_that_were_there_before_stay(process: Process) -> None:
    number = port(process)
    looks = []
    watch.PortWatch(Loop(), lambda: looks.append(1) or [process.pid]).start()
    assert sockets.trouble(number)
    assert not looks


@pytest.mark.programs
def test_a_port_is_found_once_a_process_of_the_cluster_has_it(process: Process) -> None:
    number = port(process)
    owners: list[list[int]] = [[os.getpid()], [process.pid]]  # the socket comes from another process
    late = watch.PortWatch(Loop(), lambda: owners.pop(0))
    late._look()
    assert sockets.trouble(number)
    late._look()
    assert not sockets.trouble(number)


@pytest.mark.programs
def test_a_process_whose_errors_nobody_reads_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PIDFD_GETFD", 1 << 20)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    with subprocess.Popen([sys.executable, "-I", "-c", OPEN], stdin=-1, stdout=-1, stderr=writer, text=True) as process:
        port(process)
        watch.PortWatch(Loop(), lambda: [process.pid])._look()
        assert process.wait(10) == -9
    os.close(reader)
    os.close(writer)
