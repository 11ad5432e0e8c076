"""Free ports for tasks."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.backends.local.loopback import ports, sockets
from tfk8s.backends.local.loopback.ports import Ports


@pytest.fixture
def used() -> Iterator[int]:
    """Return a port on which a server of gRPC would listen, which shares its port with others like it."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def free() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@pytest.fixture
def own() -> Iterator[Ports]:
    """Return the ports of a cluster."""
    with contextlib.closing(Ports()) as ports:
        yield ports


@pytest.fixture
def others() -> Iterator[Ports]:
    """Return the ports of another cluster in this network."""
    with contextlib.closing(Ports()) as ports:
        yield ports


def test_a_task_keeps_a_free_port(free: int, own: Ports) -> None:
    assert own.choose({"a": free}) == {"a": free}


def test_a_used_port_is_replaced(used: int, own: Ports) -> None:
    chosen = own.choose({"a": used})["a"]
    assert chosen != used
    assert chosen < int(ports.OUTGOING.read_text().split()[0])  # no outgoing connection takes the port


def test_clusters_that_start_at_once_get_different_ports(free: int, own: Ports, others: Ports) -> None:
    assert others.choose({"a": free})["a"] == free  # nothing listens there yet
    assert own.choose({"b": free})["b"] != free
    others.close()
    assert own.choose({"b": free})["b"] == free


def test_ports_that_stay_are_kept(free: int, own: Ports, others: Ports) -> None:
    own.choose({"a": free})
    own.choose({}, kept=[free])
    assert others.choose({"b": free})["b"] != free


@given(st.dictionaries(st.integers(0, 9), st.integers(2, 9), max_size=6), st.sets(st.integers(2, 9)))
def test_ports_are_different(wanted: dict[int, int], taken: set[int]) -> None:
    with contextlib.closing(Ports()) as own, contextlib.closing(Ports()) as others:
        others.choose({port: port for port in taken})
        chosen = own.choose(wanted)
    assert chosen.keys() == wanted.keys()
    assert len({*chosen.values()}) == len(chosen)
    assert not taken & {*chosen.values()}
    # A moved task has no port by which scripts know another one.
    assert all(port == wanted[key] or port not in wanted.values() for key, port in chosen.items())


def test_a_machine_that_connects_from_all_ports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, used: int) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "OUTGOING", tmp_path / "range")
    with contextlib.closing(Ports()) as own:
        assert 10_000 <= own.choose({"a": used})["a"] < 65_536


def test_a_port_that_an_earlier_server_had_is_left(monkeypatch: pytest.MonkeyPatch, free: int, own: Ports) -> None:
    monkeypatch.setattr(sockets, "outside_peers", lambda _, ports: ["10.0.0.7"] if ports == {free} else [])
    assert own.choose({"a": free})["a"] != free  # its last connections would look like those of the new server


def test_a_machine_without_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _: False)
    with pytest.raises(OSError, match="no free port from 10000 to "):
        Ports().choose({"a": 2})


def test_a_machine_may_have_ipv6_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(*_: object) -> NoReturn:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket.socket, "bind", off)
    assert not ports.has_ipv6()
