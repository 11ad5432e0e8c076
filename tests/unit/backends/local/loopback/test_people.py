"""Other people on this machine, from folders like /proc."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tfk8s.backends.local.loopback import people

OWN = 1000
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
SOCKET = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  {}        0 20 1 0 100\n"
Machine = Callable[..., Path]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a folder like /proc, with these users of processes and of sockets, and this option of its mount."""

    def make(processes: Iterable[int] = (), sockets: Iterable[int] = (), option: str = "rw") -> Path:
        owners: dict[str, int] = {}
        for number, user in enumerate(processes):
            (tmp_path / str(number + 1)).mkdir()
            owners[str(number + 1)] = user
        (tmp_path / "net").mkdir()
        (tmp_path / "net/tcp").write_text(HEAD + "".join(map(SOCKET.format, sockets)))
        (tmp_path / "self").mkdir()
        (tmp_path / "self/mountinfo").write_text(f"23 1 0:21 / {tmp_path} rw,nosuid - proc proc rw,{option}\n")
        monkeypatch.setattr(people, "user_of", lambda entry: owners[entry.name])
        return tmp_path

    return make


@pytest.mark.parametrize("users", [(), (0, OWN), (0, 1, 999, OWN, 61_184, 65_519, 65_534)])
def test_the_system_its_services_and_nobody_are_no_people(machine: Machine, users: tuple[int, ...]) -> None:
    assert people.who_else(machine(users, users), OWN) == ""


def test_people_are_named(machine: Machine) -> None:
    assert people.who_else(machine([0, 40_001]), OWN) == "user 40001 uses this machine too"


def test_some_people_are_named(machine: Machine) -> None:
    found = people.who_else(machine(range(40_000, 40_009)), OWN)
    assert found == "user 40000, user 40001, user 40002 and others use this machine too"


def test_sockets_show_people_of_other_containers(machine: Machine) -> None:
    assert people.who_else(machine([0], [40_001]), OWN) == "user 40001 uses this machine too"


@pytest.mark.parametrize(
    ("option", "is_hidden"),
    [("hidepid=2", True), ("hidepid=invisible,gid=5", True), ("hidepid=0", False), ("hidepid=off", False)],
)
def test_hidden_processes_count_as_people(machine: Machine, option: str, is_hidden: bool) -> None:
    assert ("hidepid" in people.who_else(machine([0], option=option), OWN)) is is_hidden


def test_a_user_namespace_that_hides_ids_counts_as_people(machine: Machine) -> None:
    proc = machine([0, 65534])
    assert people.who_else(proc, OWN) == ""
    (proc / "self/uid_map").write_text("         0     100000      65536\n")
    assert people.who_else(proc, OWN) == "this user namespace does not show who else uses this machine"
    (proc / "self/uid_map").write_text("         0          0 4294967295\n")
    assert people.who_else(proc, OWN) == ""


def test_this_machine_is_asked() -> None:
    assert str(os.geteuid()) not in people.who_else()
