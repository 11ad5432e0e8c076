"""Tests of the lines about servers that a closed network keeps a process from."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from tfk8s.core.network.way_out import Way
from tfk8s.task.activity import read_tables
from tfk8s.task.programs import unreachable
from tfk8s.task.programs.unreachable import Unanswered

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"


def row(peer: str, state: str, inode: int) -> str:
    return f"\n   0: 0A00020F:B3E6 {peer} {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 20"


SILENT, DNS, TASK = "010071CB:01BB", "0A00600A:0035", "0500F40A:08AE"  # 203.113.0.1:443, 10.96.0.10:53, :2222
TEXT = "for 5 s: network.allow_to of the job file, or another NetworkPolicy, may close the way to it"


def lines(looks: list[tuple[str, str]]) -> list[str]:
    """Return the lines after looks at one second's distance."""
    unanswered = Unanswered([2222])
    found = [line for now, (tcp, udp) in enumerate(looks) for line in unanswered.judge(HEAD + tcp, HEAD + udp, now)]
    return [line.replace("for 4 s", "for 5 s") for line in found]


def test_a_server_that_never_answers_is_named_once() -> None:
    assert lines([(row(SILENT, "02", inode), "") for inode in range(8)]) == [f"no answer from 203.113.0.1:443 {TEXT}"]
    assert lines([(row(SILENT, "02", 7), ""), ("", "")] * 4) == []
    assert lines([(row(SILENT, "02", 7) + row(SILENT, "01", 8), "")] * 8) == []
    assert lines([(row(TASK, "02", 7), "")] * 8) == []


def test_a_resolver_that_never_answers_is_named() -> None:
    expected = f"no answer from 10.96.0.10:53, which resolves names, {TEXT}"
    assert lines([("", row(DNS, "01", 7))] * 8) == [expected]
    assert lines([("", row(DNS, "01", inode)) for inode in range(8)]) == []
    assert lines([("", row(SILENT, "01", 7))] * 8) == []


def test_an_address_of_ipv6_is_readable() -> None:
    peer = "B80D0120000000000000000001000000:01BB"
    assert lines([(row(peer, "02", 7), "")] * 6)[0].startswith("no answer from [2001:db8::1]:443 ")


def test_the_kernel_has_these_tables() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", 53))
        inode = os.fstat(client.fileno()).st_ino
        assert (("127.0.0.1", 53), str(inode)) in set(unreachable.peers(read_tables(("udp", "udp6"))))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A process in a closed network: no connection finds a route, and no name is known."""

    def connect(_: socket.socket, address: tuple[str, int]) -> None:
        raise OSError(errno.ENETUNREACH if address[1] == 443 else errno.ECONNREFUSED, "refused")

    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", lambda *_: errno.ENETUNREACH)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    lines: list[str] = []
    unreachable.explain({unreachable.VARIABLE: Way.CLOSED.cause}, lines.append)
    return lines


def test_what_has_no_route_is_named_with_the_field(said: list[str]) -> None:
    with socket.socket() as client:
        for address in (("203.0.113.1", 443), ("203.0.113.1", 443), ("127.0.0.1", 80)):
            with pytest.raises(OSError):
                client.connect(address)
        client.connect_ex(("203.0.113.2", 80))
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect_ex(("203.0.113.3", 80))
    for host in ("data.example", None, socket.gethostname()):
        with pytest.raises(socket.gaierror):
            socket.getaddrinfo(host, 5432)
    cause = "network.allow_to of the job file is empty"
    assert said == [
        f"{cause}: {server} stays out of reach" for server in ("203.0.113.1:443", "203.0.113.2:80", "data.example:5432")
    ]


def test_an_open_network_changes_nothing() -> None:
    before = socket.socket.connect, socket.getaddrinfo
    unreachable.explain({}, print)
    assert (socket.socket.connect, socket.getaddrinfo) == before


@pytest.mark.parametrize(
    "line",
    [
        "nc: connect to 203.0.113.9 port 80 (tcp) failed: Network is unreachable",
        "dial tcp 203.0.113.9:80: connect: network is unreachable",
        "Error: connect ENETUNREACH 203.0.113.9:80",
        "curl: (6) Could not resolve host: packages.example",
        "ssh: Could not resolve hostname packages.example: Temporary failure in name resolution",
        "wget: unable to resolve host address 'packages.example'",
        "ping: packages.example: Name or service not known",
    ],
)
def test_the_words_of_a_command_are_explained_once(line: str) -> None:
    complaints = unreachable.Complaints({unreachable.VARIABLE: "closed"})
    assert [complaints.explain(text) for text in (line, "step 1", line)] == [f"closed: {line}", "", ""]
    assert unreachable.Complaints({}).explain(line) == ""
