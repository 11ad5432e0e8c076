"""README's promises in a container with Docker's default profile, and its neighbours on the network."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator

import pytest
from conftest import TIMEOUT, Container

TUTORIAL = "examples/tutorial/cluster.yaml"
ISOLATION = "loopback: other users of this machine can connect (no network namespace: unshare: Operation not permitted)"
SPOOFED = 200  # the last byte of an address that no container has

SCRIPT = """
import socket, subprocess, sys, tensorflow as tf
servers = [tf.distribute.Server.create_local_server(), tf.data.experimental.service.DispatchServer()]
own = socket.create_server(("", 21000))
child = subprocess.Popen([sys.executable, "-m", "http.server", "21001"], stderr=subprocess.DEVNULL)
for port in (21000, 21001):
    while True:
        with socket.socket() as client:
            if client.connect_ex(("localhost", port)) == 0:
                break
print("open", flush=True)
sys.stdin.read()
child.kill()
"""
OPENING = """
import socket
from tfk8s.backends.local.loopback import sockets
from tfk8s.backends.local.loopback.start import listening
server = socket.create_server(("", 22000))
print("open", flush=True)
input()
listening.bind(server.fileno())
print(sockets.trouble(22000))
"""
STUBBORN = """
import subprocess, sys
child = "import socket; server = socket.create_server(('', 23000)); input()"
sys.exit(subprocess.run([sys.executable, "-I", "-c", child]).returncode == -9)
"""


@pytest.fixture
def cluster(container: Container) -> Iterator[Container]:
    """A container in which the tutorial's cluster runs."""
    container.run(f"tfk8s up --local {TUTORIAL}")
    yield container
    container.run("tfk8s down --local tutorial")


class Neighbour:
    """Tries to connect to ports of a container, again and again, for as long as a `with` lasts."""

    def __init__(self, address: str, ports: range) -> None:
        self.connected: set[int] = set()
        self.rounds = 0
        self._address, self._ports = address, ports
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._connect)

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _connect(self) -> None:
        while not self._end.is_set() or not self.rounds:
            self.connected |= reachable(self._address, self._ports)
            self.rounds += 1


def reachable(address: str, ports: range) -> set[int]:
    """Return the ports on which somebody answers."""
    found = set()
    for port in ports:
        with socket.socket() as client:
            client.settimeout(1)
            if client.connect_ex((address, port)) == 0:
                found.add(port)
    return found


def test_demo(container: Container) -> None:
    assert "238" in container.run("make demo").splitlines()


def test_the_isolation_is_said(cluster: Container) -> None:
    assert f"isolation: {ISOLATION}" in cluster.run("tfk8s status --local tutorial")
    assert f"isolation: {ISOLATION}" in cluster.run(f"tfk8s up --local {TUTORIAL}")
    assert ISOLATION in cluster.run("tfk8s doctor --local")


def test_no_neighbour_reaches_a_cluster_that_starts_and_ends(container: Container) -> None:
    with Neighbour(container.address, range(2222, 2224)) as neighbour:
        for _ in range(3):
            container.run(f"tfk8s up --local {TUTORIAL}")
            container.run("tfk8s down --local tutorial")
    assert neighbour.connected == set()
    assert neighbour.rounds > 100


def test_no_neighbour_reaches_any_port_of_a_script(cluster: Container) -> None:
    cluster.write("/tmp/ports.py", SCRIPT)
    with (
        Neighbour(cluster.address, range(21000, 21002)) as neighbour,
        cluster.start("tfk8s submit --local tutorial /tmp/ports.py") as script,
    ):
        assert script.stdout is not None
        assert script.stdout.readline() == "open\n"
        assert reachable(cluster.address, range(1, 65536)) == set()
        script.communicate("", timeout=60)
    assert neighbour.connected == set()
    assert script.returncode == 0


def test_a_half_open_connection_is_noticed(container: Container) -> None:
    container.write("/tmp/opening.py", OPENING)
    with container.start("python3 /tmp/opening.py") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "open\n"
        spoofed = begin_connection(container.address, 22000)
        process.stdin.write("\n")
        process.stdin.flush()
        expected = f"{spoofed} connected while port 22000 was opened, before it was bound to loopback\n"
        assert process.stdout.readline() == expected


def begin_connection(address: str, port: int) -> str:
    """Send the first packet of a connection from an address that never answers; return that address."""
    spoofed = f"{address.rpartition('.')[0]}.{SPOOFED}"
    hosts = socket.inet_aton(spoofed), socket.inet_aton(address)
    segment = struct.pack("!HHIIBBHHH", 40_000, port, 1, 0, 5 << 4, 2, 1024, 0, 0)  # SYN
    checked = checksum(b"".join(hosts) + struct.pack("!HH", socket.IPPROTO_TCP, len(segment)) + segment)
    segment = segment[:16] + struct.pack("!H", checked) + segment[18:]
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 1, 0, 64, socket.IPPROTO_TCP, 0, *hosts)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        raw.sendto(header + segment, (address, 0))
    return spoofed


def checksum(data: bytes) -> int:
    """Return the checksum of the internet (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def test_a_port_that_can_not_be_bound_ends_its_process(cluster: Container) -> None:
    # Isolated Python reads no PYTHONPATH, and Docker's profile forbids pidfd_getfd.
    cluster.write("/tmp/stubborn.py", STUBBORN)
    with cluster.start("tfk8s submit --local tutorial /tmp/stubborn.py 2>&1") as script:  # its input stays open
        assert script.wait(TIMEOUT) == 1
        assert script.stdout is not None
        printed = script.stdout.read()
    assert "ends: port 23000 is open to other machines, and can't be bound to loopback" in printed


@contextlib.contextmanager
def login(container: Container, user: int) -> Iterator[None]:
    """Let another person use the machine."""
    with subprocess.Popen(
        ["docker", "exec", "--interactive", f"--user={user}", container.name, "sh", "-c", "echo in; cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        yield
        process.communicate()


def test_other_people_are_refused(cluster: Container) -> None:
    who = "user 1234 uses this machine too"
    with login(cluster, 1234):
        assert f"{ISOLATION}; {who}" in cluster.run("tfk8s status --local tutorial")
        refused = cluster.run("tfk8s submit --local tutorial examples/tutorial/two_tasks.py", code=3)
        assert f"{who}: they could connect, and run code as you" in refused
        cluster.run(f"sed s/tutorial/other/ {TUTORIAL} > /tmp/other.yaml")
        refused = cluster.run("tfk8s up --local /tmp/other.yaml", code=1)
        assert who in refused
        assert "--allow-exposed-ports" in refused
        assert who in cluster.run("tfk8s doctor --local", code=1)
        insisting = "tfk8s run --local --allow-exposed-ports --tf1 /tmp/other.yaml examples/tutorial/two_tasks.py"
        assert "238" in cluster.run(insisting).splitlines()
    assert "238" in cluster.run("tfk8s submit --local tutorial --tf1 examples/tutorial/two_tasks.py").splitlines()


READ = """
import http.client, sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).status)
except (OSError, http.client.HTTPException) as error:
    print(type(error).__name__)
"""


def test_the_live_page_answers_its_user_alone(cluster: Container) -> None:
    cluster.write("/tmp/read.py", READ)
    with cluster.start("tfk8s dashboard --no-browser 2>&1 & echo $!; wait") as page:
        assert page.stdout
        process, url = (page.stdout.readline().strip() for _ in range(2))
        streams = f"{url}stream?topic=overview"
        assert [cluster.run(f"python3 /tmp/read.py '{one}'") for one in (url, streams)] == ["200\n"] * 2
        other = cluster.run(f"/usr/bin/python3 /tmp/read.py {url}", ["--user=1234"])
        assert other != "200\n"
        cluster.run(f"kill -9 {process}")
        page.communicate()
    assert "200" not in cluster.run(f"python3 /tmp/read.py {url}")


def test_a_closed_way_out_needs_a_network_of_its_own(container: Container) -> None:
    container.run(f"(cat {TUTORIAL}; echo 'network: {{allow_to: []}}') > /tmp/closed.yaml")
    refused = container.run("tfk8s up --local /tmp/closed.yaml", code=1)
    assert "`network: {allow_to: []}` closes the way out to all networks" in refused
    assert json.loads(container.run("tfk8s ls --local -o json")) == []


def test_the_local_tests_of_loopback(container: Container) -> None:
    printed = container.run("python3 -m pytest -q -p no:cacheprovider tests/local/test_loopback.py")
    assert " passed" in printed
    assert os.environ.get("CI") is None or "skipped" not in printed
