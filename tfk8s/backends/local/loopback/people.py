"""Other people on this machine, who can connect to its loopback ports."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

_FIRST_PERSON = 1000  # smaller numbers are the system's users (login.defs(5))
_NOBODY = 65534
_SERVICES = range(61184, 65520)  # systemd's services with DynamicUser (systemd.exec(5))
_MAX_NAMED = 3
_ALL_IDS = ["0", "0", "4294967295"]  # of user_namespaces(7)
_TABLES = ("tcp", "tcp6", "udp", "udp6")
_VISIBLE = ("hidepid=0", "hidepid=off")


def who_else(proc: Path = Path("/proc"), own: int | None = None) -> str:
    """Return the other people that this machine shows, as the end of a sentence; "" if there is none.

    Args:
        proc: the folder of the kernel's processes.
        own: this user's id; default: that of this process.
    """
    if _is_hidden(proc):
        return "this machine hides the processes of other users (hidepid)"
    own = os.geteuid() if own is None else own
    users = {*_of_processes(proc), *_of_sockets(proc)}
    others = sorted(user for user in users if user != own and _is_person(user))
    if _NOBODY in users and _hides_ids(proc):
        return "this user namespace does not show who else uses this machine"
    if not others:
        return ""
    names = ", ".join(map(_name, others[:_MAX_NAMED]))
    if len(others) == 1:
        return f"{names} uses this machine too"
    return f"{names}{' and others' if len(others) > _MAX_NAMED else ''} use this machine too"


def _is_hidden(proc: Path) -> bool:
    """Return whether processes of other users are hidden (proc(5)): then nobody knows who is there."""
    try:
        lines = (proc / "self/mountinfo").read_text().splitlines()
    except OSError:
        return True
    options = (line.rpartition(" ")[2].split(",") for line in lines if " - proc " in line and f" {proc} " in line)
    return any(option.startswith("hidepid=") and option not in _VISIBLE for names in options for option in names)


def _of_processes(proc: Path) -> Iterator[int]:
    for entry in os.scandir(proc):
        if entry.name.isdecimal():
            try:
                yield user_of(entry)
            except OSError:  # the process has ended
                continue


def user_of(entry: os.DirEntry[str]) -> int:
    """Return the user of a process, by its folder."""
    return entry.stat().st_uid


def _of_sockets(proc: Path) -> Iterator[int]:
    """Yield the users of sockets, whose processes may be in other containers of this network."""
    for table in _TABLES:
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:  # a kernel without IPv6
            continue
        # A socket without a process has no inode, and its user is said to be root.
        yield from (int(fields[7]) for line in lines if len(fields := line.split()) > 9)


def _hides_ids(proc: Path) -> bool:
    """Return whether this process is in a user namespace, where users that it does not know are nobody."""
    try:
        return (proc / "self/uid_map").read_text().split() != _ALL_IDS
    except OSError:
        return False


def _is_person(user: int) -> bool:
    return user >= _FIRST_PERSON and user != _NOBODY and user not in _SERVICES


def _name(user: int) -> str:
    try:
        return f'"{pwd.getpwuid(user).pw_name}"'
    except KeyError:
        return f"user {user}"
