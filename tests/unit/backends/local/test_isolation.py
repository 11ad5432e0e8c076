"""The isolation of a cluster, on machines that allow more or less."""

from __future__ import annotations

import importlib
import sys

import pytest

from tfk8s.backends.local import isolation
from tfk8s.backends.local.isolation import Isolation, Kind, Refused
from tfk8s.errors import InvalidInput

DENIED = PermissionError(1, "unshare: Operation not permitted")
REASON = "no network namespace: unshare: Operation not permitted"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return what the machine refuses: an error for a namespace and for loopback, and the other people."""
    refused: dict[str, object] = {"namespace": DENIED, "loopback": None, "people": ""}

    def raise_(name: str) -> None:
        if isinstance(error := refused[name], OSError):
            raise error

    monkeypatch.setattr(isolation.network_namespace, "enter", lambda _: raise_("namespace"))
    monkeypatch.setattr(isolation, "require_loopback", lambda: raise_("loopback"))
    monkeypatch.setattr(isolation.people, "who_else", lambda: refused["people"])
    return refused


def test_own_network(machine: dict[str, object]) -> None:
    machine["namespace"] = None
    found = isolation.enter(insists=False)
    assert (str(found), found.describe(), found.refusal(), found.is_shared) == (
        "own network",
        "own network",
        None,
        False,
    )


def test_loopback_where_no_namespace_can_be_made(machine: dict[str, object]) -> None:
    found = isolation.enter(insists=False)
    assert found == Isolation(Kind.LOOPBACK, REASON)
    assert str(found) == f"loopback: other users of this machine can connect ({REASON})"


def test_loopback_is_refused_where_other_people_are(machine: dict[str, object]) -> None:
    machine["people"] = '"ann" uses this machine too'
    with pytest.raises(Refused) as caught:
        isolation.enter(insists=False)
    assert str(caught.value) == (
        "the cluster's ports are on this machine's loopback device (no network namespace: unshare: Operation not "
        'permitted), and "ann" uses this machine too: they could connect, and run code as you'
    )
    assert "--allow-exposed-ports" in caught.value.help


def test_the_user_may_insist(machine: dict[str, object]) -> None:
    machine["people"] = '"ann" uses this machine too'
    found = isolation.enter(insists=True)
    assert found.describe() == (
        'loopback: other users of this machine can connect (--allow-exposed-ports); "ann" uses this machine too'
    )


def test_people_who_come_later_are_shown_and_refused(machine: dict[str, object]) -> None:
    found = isolation.enter(insists=False)
    assert found.refusal() is None
    machine["people"] = '"ann" uses this machine too'
    assert found.describe().endswith('; "ann" uses this machine too')
    assert found.refusal() is not None


def test_a_kernel_that_can_do_neither(machine: dict[str, object]) -> None:
    machine["loopback"] = OSError(92, "Protocol not available")
    with pytest.raises(Refused) as caught:
        isolation.enter(insists=False)
    assert str(caught.value) == (
        "can't create a network namespace (unshare: Operation not permitted), and can't bind ports to the loopback "
        "device (Protocol not available)"
    )
    found = isolation.enter(insists=True)
    assert found.kind is Kind.NONE
    assert not found.is_loopback
    assert str(found) == (
        "none: all who can reach this machine can connect (--allow-exposed-ports; ports can't be bound to loopback: "
        "Protocol not available)"
    )


def test_this_machine_binds_ports_to_loopback() -> None:
    isolation.require_loopback()


def test_a_python_without_ctypes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    monkeypatch.delitem(sys.modules, "tfk8s.backends.local.network_namespace")
    with pytest.raises(InvalidInput, match=r"need Python's module ctypes, and .*python.* can't import it") as caught:
        importlib.import_module("tfk8s.backends.local.network_namespace")
    assert "libffi" in caught.value.help
