"""One task by hand: `tfk8s server`, as users of the old grpc_tensorflow_server start it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tfk8s.sessions.eager import remote_context
from tfk8s.task import config, probe, server, wire

ROUNDS = 40  # without a context from the start, the server crashed in the first few

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a task by hand; none is left at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "tfk8s.task.server", *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
            )
        )  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("", 0))
        other.bind(("", 0))
        return one.getsockname()[1], other.getsockname()[1]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def devices(port: int) -> list[str]:
    with socket.create_connection(("localhost", port)) as stream:
        return sorted(device.name for device in probe.all_devices(wire.call(stream, wire.LIST_DEVICES, 10)))


def test_two_tasks_by_hand_make_a_cluster(start: Start, ports: tuple[int, int]) -> None:
    a, b = ports
    spec = f"worker|localhost:{a};localhost:{b}"
    one = start("--cluster_spec", spec, "--job_name", "worker", "--task_id", "0")
    config = {"cluster": {"worker": [f"localhost:{a}", f"localhost:{b}"]}, "task": {"type": "worker", "index": 1}}
    other = start(TF_CONFIG=json.dumps(config))
    line = first_line(one)
    assert line.startswith(f"tfk8s: worker/0 of 2 tasks listens on port {a}: TensorFlow 2.")
    assert line.rstrip().endswith(", 1 CPU")
    assert first_line(other).startswith(f"tfk8s: worker/1 of 2 tasks listens on port {b}: ")
    assert devices(a) == [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in (0, 1)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_server_stops_at_once(start: Start, ports: tuple[int, int], number: int, code: int) -> None:
    process = start(f"--cluster-spec=a|localhost:{ports[0]}", "--job-name=a", "--task-index=0")
    assert first_line(process)
    process.send_signal(number)
    assert process.wait(10) == code  # at once, on a busy machine


def test_port_in_use_is_an_error(start: Start) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(f"--cluster-spec=a|localhost:{port}", "--job-name=a", "--task-index=0")
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, f"error: a/0 can't listen on port {port}: Address already in use\n")


def test_bad_input_exits_with_2(start: Start) -> None:
    process = start("--cluster-spec=my-job|localhost:1", "--job-name=my-job", "--task-index=0")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith('error: "my-job" is not a TensorFlow job name')


def test_without_the_library_the_task_imports_tensorflow(start: Start, ports: tuple[int, int], tmp_path: Path) -> None:
    """The library is hidden by a package `tensorflow` that is all links to the real one, but for the library."""
    real = server.find_tensorflow()
    assert real is not None
    fake = tmp_path / "tensorflow"
    fake.mkdir()
    for entry in Path(real).iterdir():
        if entry.name not in ("libtensorflow_cc.so.2", "__pycache__"):
            (fake / entry.name).symlink_to(entry)
    process = start(
        f"--cluster-spec=a|localhost:{ports[0]}", "--job-name=a", "--task-index=0", PYTHONPATH=str(tmp_path)
    )
    line = first_line(process)
    assert line.startswith(f"tfk8s: a/0 alone listens on port {ports[0]}: TensorFlow 2.")
    assert "(by importing TensorFlow: " in line
    assert "libtensorflow_cc.so.2" in line
    assert devices(ports[0]) == ["/job:a/replica:0/task:0/device:CPU:0"]


def test_clients_that_connect_first_at_the_same_time(start: Start, ports: tuple[int, int]) -> None:
    spec = {"ps": [f"localhost:{ports[0]}"], "worker": [f"localhost:{ports[1]}"]}
    process = start(f"--cluster-spec={json.dumps(spec)}", "--job-name=ps", "--task-index=0", TF_CPP_MIN_LOG_LEVEL="2")
    assert " listens on port " in first_line(process)
    server_def = config.check_config(config.parse_cluster(json.dumps(spec)), "ps", 0).server_def()
    operation = wire.field(2, "NoOp") + wire.field(6, "/job:ps/replica:0/task:0/device:CPU:0")
    together = threading.Barrier(2, timeout=60)

    def call(method: str, request: bytes) -> None:
        with socket.create_connection(("localhost", ports[0])) as stream:
            wire.call(stream, f"/tensorflow.eager.EagerService/{method}", 10, request)

    def connect(client: int) -> None:
        for number in range(client, client + ROUNDS):
            together.wait()
            call("CreateContext", wire.field(1, server_def) + wire.fixed64_field(7, number))
            call("Enqueue", wire.fixed64_field(1, number) + wire.field(3, wire.field(2, operation)))
            together.wait()
            call("CloseContext", remote_context.close_request(number))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(connect, (10, 10_000)))  # a lost server refuses the connection
