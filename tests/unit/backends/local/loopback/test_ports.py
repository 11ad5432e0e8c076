"""Free ports for tasks."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.backends.local.loopback import ports


@pytest.fixture
def used() -> Iterator[int]:
    """Return a port on which a server of gRPC would listen, which shares its port with others like it."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_task_keeps_a_free_port() -> None:
    assert ports.choose({"a": 2, "b": 3}, ()) == {"a": 2, "b": 3}


def test_a_used_port_is_replaced(used: int) -> None:
    chosen = ports.choose({"a": used}, ())["a"]
    assert chosen != used
    assert chosen < int(ports._OUTGOING.read_text().split()[0])  # no outgoing connection takes the port


@given(
    st.dictionaries(st.integers(0, 9), st.integers(2, 9), max_size=6).filter(lambda d: len({*d.values()}) == len(d)),
    st.sets(st.integers(2, 9)),
)
def test_ports_are_different(wanted: dict[int, int], taken: set[int]) -> None:
    chosen = ports.choose(wanted, taken)
    assert chosen.keys() == wanted.keys()
    assert len({*chosen.values()}) == len(chosen)
    assert not taken & {*chosen.values()}
    # A moved task has no port by which scripts know another one.
    assert all(port == wanted[key] or port not in wanted.values() for key, port in chosen.items())


def test_a_machine_without_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _: False)
    with pytest.raises(OSError, match="no free port from 10000 to "):
        ports.choose({"a": 2}, ())
