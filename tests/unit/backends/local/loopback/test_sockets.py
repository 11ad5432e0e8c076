"""The sockets of this network, and the connections from elsewhere."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from tfk8s.backends.local.loopback import sockets
from tfk8s.backends.local.loopback.sockets import Listener
from tfk8s.backends.local.loopback.start import listening

LOOPBACK = socket.if_nametoindex("lo")
ANY = socket.inet_ntoa(bytes(4))
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LINE = "   0: {} {} {} 00000000:00000000 00:00000000 00000000  1000        0 20 1 0 100 0 0 10 0\n"
HERE, THERE, LOCAL = "0500000A:08AE", "0700000A:C000", "0100007F:C000"  # 10.0.0.5:2222, 10.0.0.7:49152, 127.0.0.1


@pytest.mark.skipif(sys.byteorder == "big", reason="the tables are a little-endian machine's")
@pytest.mark.parametrize(
    ("own", "peer", "state", "found"),
    [
        (HERE, THERE, "01", ["10.0.0.7"]),
        (HERE, THERE, "03", ["10.0.0.7"]),  # half-open: the handshake has begun
        (HERE, THERE, "06", ["10.0.0.7"]),  # closed already
        (HERE, "00000000:0000", "0A", []),  # listens
        (HERE, "0500000A:C000", "01", []),  # of this machine, at the same address
        ("0100007F:08AE", LOCAL, "01", []),
        ("0500000A:08AF", THERE, "01", []),  # of another port
    ],
)
def test_connections_from_elsewhere(own: str, peer: str, state: str, found: list[str]) -> None:
    assert sockets.outside_peers(HEAD + LINE.format(own, peer, state), {2222}) == found


@pytest.mark.parametrize(
    ("host", "device", "is_open"),
    [
        ("::", 0, True), (ANY, 0, True), ("10.0.0.5", 7_000, True), ("fe80::1", 0, True),
        ("::", LOOPBACK, False), ("127.0.0.1", 0, False), ("::1", 0, False), ("127.8.8.8", 0, False),
    ],
)  # fmt: skip
def test_open_ports(host: str, device: int, is_open: bool) -> None:
    assert Listener(host, 1, device, 0, 0).is_open is is_open


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_bound_socket_is_closed_to_others(family: socket.AddressFamily) -> None:
    with socket.socket(family) as server:
        server.listen()
        inode, port = os.fstat(server.fileno()).st_ino, server.getsockname()[1]

        def own() -> Listener:
            (found,) = (item for item in sockets.listeners() if item.inode == inode)
            return found

        assert own() == Listener("::" if family == socket.AF_INET6 else ANY, port, 0, os.geteuid(), inode)
        assert sockets.trouble(port) == f"port {port} is open to other machines: it is not bound to loopback"
        listening.bind(server.fileno())
        listening.bind(server.fileno())  # a second time, for which Linux wants a capability
        assert own().device == LOOPBACK
        assert sockets.trouble(port) == ""
