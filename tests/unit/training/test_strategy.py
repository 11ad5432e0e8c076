"""The errors and the address of `tfk8s.strategy()`; the strategy itself is in tests/local."""

from __future__ import annotations

import socket
import sys
import traceback
import types
from collections.abc import Callable

import pytest

import tfk8s
from tfk8s.core import naming
from tfk8s.core.addresses import script_ports
from tfk8s.errors import InvalidInput, TaskUnreachable
from tfk8s.sessions.forward import Forward
from tfk8s.training import strategy


def test_other_jobs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFK8S_CLUSTER", '{"worker": ["w:1"], "ps": ["p:1"]}')
    with pytest.raises(InvalidInput) as caught:
        tfk8s.strategy("wrker")
    assert str(caught.value) == 'tfk8s.strategy(): this cluster has no job "wrker"'
    assert caught.value.help == "the jobs are worker, ps"


def test_scripts_that_the_tasks_can_not_reach_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFK8S_CLUSTER", '{"worker": ["localhost:2222"]}')
    monkeypatch.setenv("TFK8S_FORWARDED", "1")
    with pytest.raises(InvalidInput) as caught:
        tfk8s.strategy()
    assert str(caught.value) == (
        "tfk8s.strategy() does not work with --here: the tasks can't connect to a script on this machine"
    )
    assert caught.value.help == "leave out --here to run the script beside the tasks"


NOTEBOOK = 'write the code into a file, and call cluster.submit("train.py"), which runs the file beside the tasks'


@pytest.mark.parametrize("function", [tfk8s.strategy, tfk8s.session])
def test_notebooks_are_led_to_the_handle(monkeypatch: pytest.MonkeyPatch, function: Callable[[], object]) -> None:
    for name in ("TFK8S_CLUSTER", "TFK8S_TARGET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with pytest.raises(InvalidInput) as caught:
        function()
    assert str(caught.value.help).partition("; ")[0] == NOTEBOOK


def test_scripts_without_a_cluster_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFK8S_CLUSTER", raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with pytest.raises(InvalidInput) as caught:
        tfk8s.strategy()
    assert str(caught.value) == "no cluster to train on: TFK8S_CLUSTER is not set"
    assert caught.value.help == "run the script with `tfk8s submit NAME SCRIPT`, which runs it beside the tasks"
    assert traceback.format_exception_only(caught.value)[-1] == f"help: {caught.value.help}\n"


@pytest.mark.parametrize("shared", [True, False])
def test_the_port_is_the_masters_if_its_users_share_it(shared: bool) -> None:
    def dial() -> socket.socket:
        raise TaskUnreachable("this test needs the port alone")

    with Forward(dial, shared=shared) as master:
        address = strategy.own_address(master.target)
        assert (address == f"127.0.0.1:{master.port}") is shared
        assert address.startswith("127.0.0.1:")


def test_a_silent_master_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        target = f"grpc://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(TaskUnreachable) as caught:
            strategy.own_address(target)
    assert str(caught.value) == f"the master does not answer at {target}: [Errno 111] Connection refused"


def test_addresses_of_ipv6_have_brackets() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        assert strategy.own_address(f"grpc://[::1]:{server.getsockname()[1]}").startswith("[::1]:")


def test_scripts_that_share_a_pod_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(naming.SHARED_POD, "script-1")
    with socket.create_server(("127.0.0.1", 0)) as master, socket.socket(socket.AF_UNIX) as other:
        port = master.getsockname()[1]
        own = script_ports(port)
        other.bind(f"\0tfk8s-port-{own[0]}")
        for _ in range(2):
            assert strategy.own_address(f"grpc://127.0.0.1:{port}") == f"127.0.0.1:{own[1]}"
