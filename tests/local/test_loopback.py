"""Clusters in this machine's own network: their ports are bound to loopback, and two of them may want the same port."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
from clusters import is_ready, wait_for
from job_files import job_file

from tfk8s.backends.local.backend import LocalBackend
from tfk8s.backends.local.loopback import sockets
from tfk8s.core.addresses import host_and_port
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job, JobFile
from tfk8s.core.status import Phase

Run = Callable[..., tuple[int, str, str]]
Up = Callable[[JobFile], str]

SESSION = """
import tensorflow.compat.v1 as tf
with tf.Session("grpc://localhost:2222") as session:
    print(*sorted({device.name.split("/")[1] for device in session.list_devices()}))
"""
SERVER = """
import sys
import tensorflow as tf
server = tf.train.Server({sys.argv[1]: ["localhost:2222", "localhost:2223"]}, job_name=sys.argv[1], task_index=1)
with tf.Session(server.target) as session:
    with tf.device(f"/job:{sys.argv[1]}/task:1"):
        print(session.run(tf.constant(238)))
"""
EAGER = """
import sys
import tensorflow as tf
tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({sys.argv[1]: ["localhost:2222", "localhost:2223"]}))
with tf.device(f"/job:{sys.argv[1]}/task:1"):
    print((tf.constant(1) + 1).device.split("/")[1])
"""
PORTS = """
import os, socket, subprocess, sys
from pathlib import Path
import tensorflow as tf
from tfk8s.backends.local.loopback import sockets

CHILD = "import http.server; s = http.server.HTTPServer(('', 0), None); print(s.server_port, flush=True); input()"
server = tf.distribute.Server.create_local_server()
dispatcher = tf.data.experimental.service.DispatchServer()
tf.profiler.experimental.server.start(int(sys.argv[1]))
own = socket.create_server(("", 0))
child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
ports = {
    server.target.rpartition(":")[2], dispatcher.target.rpartition(":")[2], sys.argv[1], own.getsockname()[1],
    child.stdout.readline(),
}
found = [item for item in sockets.listeners() if item.port in set(map(int, ports))]
print(len(found), [item for item in found if item.is_open])
child.communicate("")
"""


@pytest.fixture(scope="module")
def backend() -> LocalBackend:
    return LocalBackend(allow_exposed_ports=True)


@pytest.fixture(scope="module")
def pairs(backend: LocalBackend, state_home: object) -> Iterator[list[str]]:
    """Two clusters with other jobs at the same ports, and the second's name."""
    backend.apply(job_file("first", first=2))
    backend.apply(job_file("second", second=2))
    yield ["first", "second"]
    for name in ("first", "second"):
        backend.delete(name)


@pytest.mark.parametrize("name", ["first", "second"])
def test_no_port_of_a_task_is_open(pairs: list[str], backend: LocalBackend, name: str) -> None:
    wait_for(backend, name, is_ready)
    status = backend.observe(name)
    assert status.isolation.startswith("loopback: other users of this machine can connect")
    ports = [host_and_port(task.address)[1] for task in status.tasks]
    assert [sockets.trouble(port) for port in ports] == ["", ""]
    assert len([item for item in sockets.listeners() if item.port in ports]) == 2


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_literal_address_leads_to_the_own_cluster(pairs: list[str], run: Run, name: str) -> None:
    code, out, err = run(name, SESSION, tf1=True)
    assert (code, out) == (0, f"job:{name}\n"), err


def test_a_server_with_literal_addresses_is_the_own_clusters(pairs: list[str], run: Run) -> None:
    code, out, err = run("second", SERVER, "second", tf1=True)
    assert (code, out) == (0, "238\n"), err


def test_an_eager_script_connects_to_its_own_cluster(pairs: list[str], run: Run) -> None:
    code, out, err = run("second", EAGER, "second")
    assert (code, out) == (0, "job:second\n"), err


@pytest.mark.parametrize("fresh", [False, True])
def test_ports_of_a_script_and_its_children_are_bound(pairs: list[str], run: Run, fresh: bool, free_port: int) -> None:
    code, out, err = run("second", PORTS, str(free_port), fresh=fresh)
    assert (code, out) == (0, "5 []\n"), err


@pytest.fixture
def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_new_tasks_get_ports_of_their_own(
    backend: LocalBackend, up: Callable[[JobFile], str], pairs: list[str]
) -> None:
    name = up(job_file("third", worker=1))
    backend.scale(name, {"worker": 3})
    wait_for(backend, name, is_ready)
    addresses = [task.address for other in (*pairs, name) for task in backend.observe(other).tasks]
    assert len({*addresses}) == 7


def test_programs_find_each_other(
    backend: LocalBackend, up: Callable[[JobFile], str], pairs: list[str], tmp_path: object
) -> None:
    code = (
        "import json, os, sys; from tfk8s.backends.local.loopback import sockets; import socket\n"
        "config = json.loads(os.environ['TF_CONFIG'])\n"
        "port = int(config['cluster']['worker'][config['task']['index']].rpartition(':')[2])\n"
        "server = socket.create_server(('', port))\n"
        "sys.exit(port in (2222, 2223) or bool(sockets.trouble(port)))\n"
    )
    program = Program(("python3", "-c", code), str(tmp_path))
    name = up(JobFile(name="programs", master="worker", jobs=(Job(name="worker", tasks=2, program=program),)))
    wait_for(backend, name, lambda status: status.phase in (Phase.SUCCEEDED, Phase.FAILED))
    assert [task.exit_code for task in backend.observe(name).tasks] == [0, 0]
