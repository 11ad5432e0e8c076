"""Tests of the links between the pods of programs that run again together, with real connections."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfk8s import polling
from tfk8s.core.programs import RunPolicy
from tfk8s.task import activity
from tfk8s.task.programs.restarts.coordinator_server import CoordinatorServer
from tfk8s.task.programs.restarts.linked_restarts import LinkedRestarts
from tfk8s.task.programs.restarts.restart_connections import keep_alive
from tfk8s.task.programs.restarts.restart_coordinator import FAILED, START, STOP, STOPPED, WELCOME, Order
from tfk8s.task.programs.restarts.restart_link import Link

POLICY = RunPolicy(max_restarts=3)
MakeLink = Callable[..., LinkedRestarts]


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def await_order(restarts: LinkedRestarts, kind: str) -> Order:
    def look() -> Order | None:
        while order := restarts.take_order():
            if order.kind == kind:
                return order
        return None

    return polling.wait_until(look, f"the order to {kind}", 10)


@pytest.fixture
def server() -> CoordinatorServer:
    made = CoordinatorServer("worker/0", "pod 0", POLICY, 0)
    made.start()
    return made


@pytest.fixture
def port(server: CoordinatorServer) -> int:
    return server.port


@pytest.fixture
def make_link(port: int) -> Iterator[MakeLink]:
    """Makes links of tasks of the job worker; returns the side of process 1."""
    ends = []

    def make(index: int, port: int = port) -> LinkedRestarts:
        own, other = socket.socketpair()
        ends.extend([own, other])
        link = Link(f"worker/{index}", f"pod {index}", ("localhost", port), other, lambda: None, patience=0.2)
        link.start()
        threading.Thread(target=link.run, daemon=True).start()
        return LinkedRestarts(own)

    yield make
    for end in ends:
        end.close()


def until_linked(port: int, count: int) -> None:
    """Wait until a coordinator has accepted connections; a connection that waits for that has no inode."""

    def is_linked() -> bool:
        found = activity.connections(activity.read_tables())
        return sum(item.port == port and item.inode > 0 for item in found) == count

    polling.wait_until(is_linked, f"{count} links", 20)


def test_failure_of_one_program_starts_all_again(port: int, make_link: MakeLink) -> None:
    first, second = make_link(1), make_link(2)
    for restarts in (first, second):
        await_order(restarts, WELCOME)
    second.tell(FAILED, 137)
    await_order(first, STOP)
    first.tell(STOPPED, 143)
    orders = [await_order(restarts, START) for restarts in (first, second)]
    assert {(order.restarts, order.reason) for order in orders} == {
        (1, "worker/2 ended with exit code 137, restart 1 of 3")
    }


def test_program_without_a_coordinator_runs_again_alone(make_link: MakeLink) -> None:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))  # and does not listen
        alone = make_link(1, taken.getsockname()[1])
        alone.tell(FAILED, 137)
        await_order(alone, START)
    assert alone.restarts == 1


def test_coordinator_that_leaves_leaves_the_others_alone(
    port: int, make_link: MakeLink, server: CoordinatorServer
) -> None:
    other = make_link(1)
    await_order(other, WELCOME)
    server.leave()
    other.tell(FAILED, 137)
    assert await_order(other, START).reason == ""


def test_lost_node_is_noticed_while_an_order_is_on_its_way() -> None:
    with socket.socket() as connection:
        keep_alive(connection)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", b'["News", "failed", 1]\n', b"x" * 5000])
def test_what_is_no_pod_is_cut(port: int, sent: bytes) -> None:
    with socket.create_connection(("localhost", port), 5) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""


# Runs process 1 of a pod whose coordinator is on this machine.
PROCESS_1 = """
import sys
from tfk8s.core import naming
naming.pod_address = lambda *_: "localhost:{}"
from tfk8s.task.programs import pod
sys.exit(pod.main(sys.argv[1:]))
"""
RUNS = 'echo $TFK8S_INDEX >> begun; echo $$ > "running-$TFK8S_INDEX"; exec sleep 1000'


@pytest.mark.programs
def test_programs_of_three_pods_run_again_together(tmp_path: Path) -> None:
    port = free_port()
    pods = []
    for index in range(3):
        variables = {
            "TFK8S_NAME": "demo", "TFK8S_NAMESPACE": "ns", "TFK8S_JOBS": "worker=3", "TFK8S_PORT": "2222",
            "TFK8S_JOB": "worker", "TFK8S_INDEX": str(index),
        }  # fmt: skip
        words = [sys.executable, "-c", PROCESS_1.format(port), "exit-code", "1", f"worker/0:{port}", "sh", "-c", RUNS]
        with open(tmp_path / f"errors-{index}", "w") as errors:
            pods.append(subprocess.Popen(words, cwd=tmp_path, stderr=errors, env={**os.environ, **variables}))

    def begun(count: int) -> list[str] | None:
        found = (tmp_path / "begun").read_text().split() if (tmp_path / "begun").exists() else []
        return found if len(found) >= count else None

    try:
        assert sorted(polling.wait_until(lambda: begun(3), "the start", 20)) == ["0", "1", "2"]
        until_linked(port, 3)
        os.kill(int((tmp_path / "running-1").read_text()), signal.SIGKILL)
        assert sorted(polling.wait_until(lambda: begun(6), "the restart", 20)[3:]) == ["0", "1", "2"]
        os.kill(int((tmp_path / "running-2").read_text()), signal.SIGKILL)
        assert pods[2].wait(20) == 1
    finally:
        for pod in pods:
            pod.terminate()
        codes = [pod.wait(20) for pod in pods]
    assert codes == [143, 143, 1]
    reason = "worker/1 ended with exit code 137, restart 1 of 1"
    said = [
        [f"worker/0 is stopped: {reason}", f"worker/0 runs again: {reason}"],
        ["worker/1 ended with exit code 137, and waits for the others", f"worker/1 runs again: {reason}"],
        [f"worker/2 is stopped: {reason}", f"worker/2 runs again: {reason}"],
    ]
    for index, lines in enumerate(said):
        assert (tmp_path / f"errors-{index}").read_text().splitlines() == [f"tfk8s: {line}" for line in lines]
