"""Tests of the supervisor's part of the way out, of its resolver, and of this machine's addresses."""

from __future__ import annotations

import ipaddress

import pytest

from tfk8s.backends.local.way_out import own_addresses, supervisor_part
from tfk8s.backends.local.way_out.closed_routes import _RTENTRY
from tfk8s.backends.local.way_out.resolver import with_reachable
from tfk8s.core.job_file.mappings import Destination
from tfk8s.core.network.way_out import Way


@pytest.mark.parametrize(
    ("allow_to", "shared", "installed", "way"),
    [
        (None, False, [Way.SLIRP, Way.PASTA], Way.SLIRP),
        (None, False, [Way.PASTA], Way.PASTA),
        (None, False, [], Way.PROXY),
        ((), False, [Way.SLIRP], Way.CLOSED),
        ((Destination(cidr="10.0.0.0/8"),), False, [Way.SLIRP], Way.LIST),
        (None, True, [Way.SLIRP], Way.MACHINE),
        ((Destination(cidr="10.0.0.0/8"),), True, [Way.SLIRP], Way.UNKEPT),
    ],
)
def test_the_way_of_a_new_cluster(
    monkeypatch: pytest.MonkeyPatch,
    allow_to: tuple[Destination, ...] | None,
    shared: bool,
    installed: list[Way],
    way: Way,
) -> None:
    monkeypatch.setattr(supervisor_part.helper_programs, "installed", lambda: installed)
    assert supervisor_part.planned(allow_to, shared=shared) is way
    assert way.text


def test_a_shared_network_changes_no_variable() -> None:
    way_out = supervisor_part.WayOut(None, {}, shared=True)
    environment = {"HTTPS_PROXY": "http://proxy.example:3128"}
    assert way_out.variables(environment) == environment


FIB = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
     |-- 192.0.2.2
        /32 host LOCAL
"""


def test_the_addresses_of_this_machine() -> None:
    assert own_addresses.parse_ipv4(FIB) == {ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("192.0.2.2/32")}
    zero, rest = "0" * 32, "00000000 00000003 00000000"
    lines = [f"{'0' * 31}1 80 {zero} 00 {zero} {rest} 80200001 lo", f"{zero} 00 {zero} 00 {zero} {rest} 00000003 eth0"]
    assert own_addresses.parse_ipv6("\n".join(lines)) == {ipaddress.ip_network("::1/128")}
    assert ipaddress.ip_network("127.0.0.0/8") in own_addresses.read()


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("search a\nnameserver 10.0.0.1\n", None),
        ("nameserver 127.0.0.53\noptions edns0\n", "nameserver 10.0.2.3\noptions edns0\n"),
        ("nameserver 10.0.0.1\nnameserver 192.0.2.2\n", "nameserver 10.0.2.3\n"),
        ("nameserver fd00::1\n", "nameserver 10.0.2.3\n"),
        ("nameserver nonsense\n", "nameserver 10.0.2.3\n"),
        ("", "nameserver 10.0.2.3\n"),
    ],
)
def test_a_resolver_out_of_reach_is_replaced(text: str, changed: str | None) -> None:
    own = [ipaddress.ip_network("192.0.2.2/32")]
    assert with_reachable(text, own) == (text if changed is None else changed)


def test_the_kernels_struct_has_its_size() -> None:
    assert _RTENTRY.size == 120  # sizeof(struct rtentry) on machines of 64 bits
