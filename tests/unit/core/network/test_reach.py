"""Tests of the addresses that a local cluster's processes may connect to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.job_file.mappings import Destination
from tfk8s.core.network.reach import NEVER, Allowed, allowed, refusal

OWN = [ipaddress.ip_network("192.0.2.2/32"), ipaddress.ip_network("2001:db8::2/128")]


def reason(address: str, port: int = 443, ranges: list[Allowed] | None = None) -> str:
    return refusal(ipaddress.ip_address(address), port, OWN, ranges)


@pytest.mark.parametrize(
    "address",
    ["192.0.2.2", "2001:db8::2", "::ffff:192.0.2.2", "64:ff9b::192.0.2.2", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0",  # noqa: S104
     "::", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fe80::1%2", "224.0.0.1", "ff02::1",
     "255.255.255.255"],
)  # fmt: skip
def test_the_machine_itself_stays_out_of_reach(address: str) -> None:
    assert reason(address)
    everything = [Allowed(ipaddress.ip_network("::/0")), Allowed(ipaddress.ip_network((0, 0)))]
    assert reason(address, ranges=everything)


@pytest.mark.parametrize("address", ["192.0.2.3", "10.0.0.1", "2001:db8::3", "fd00::1"])
def test_other_machines_are_in_reach(address: str) -> None:
    assert reason(address) == ""


@given(st.ip_addresses(v=4))
def test_an_address_in_an_ipv6_address_is_judged_as_itself(address: ipaddress.IPv4Address) -> None:
    mapped = ipaddress.IPv6Address((0xFFFF << 32) | int(address))
    assert bool(refusal(mapped, 1, OWN, None)) == bool(refusal(address, 1, OWN, None))


@given(st.ip_addresses(), st.integers(1, 65535), st.lists(st.ip_addresses().map(ipaddress.ip_network), max_size=3))
def test_what_is_in_reach_is_neither_here_nor_outside_of_the_list(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, ranges: list[ipaddress.IPv4Network]
) -> None:
    if not refusal(address, port, OWN, [Allowed(part) for part in ranges]):
        assert not any(address in part for part in (*OWN, *NEVER))
    assert refusal(address, port, OWN, [])


def test_a_list_has_ranges_exceptions_and_ports() -> None:
    ranges = allowed(
        [
            Destination(cidr="10.0.0.0/8", except_=("10.1.0.0/16",), ports=(443,)),
            Destination(namespace="other"),
            Destination(cidr="fd00::/8"),
        ]
    )
    assert ranges is not None
    assert reason("10.2.0.1", 443, ranges) == reason("fd00::1", 9, ranges) == ""
    assert reason("10.2.0.1", 80, ranges) == "network.allow_to of the job file does not have 10.2.0.1 port 80"
    assert reason("10.1.0.1", 443, ranges)
    assert reason("8.8.8.8", 443, ranges)


def test_absent_and_empty_differ() -> None:
    assert allowed(None) is None
    assert allowed([]) == []
