"""The programs that give a network namespace a way out: all protocols over IPv4, and names.

slirp4netns is tried first, then pasta. Both run outside of the namespace, have the device `tap0` with the same
addresses inside, and open ordinary connections of this user. Only a start shows whether a program works.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tfk8s import polling
from tfk8s.core.network.way_out import Way

RESOLVER = "10.0.2.3"  # the address at which both answer for this machine's own resolver
_GATEWAY, _OWN, _PREFIX = "10.0.2.2", "10.0.2.100", "24"  # what slirp4netns has by default
DEVICE = "/dev/net/tun"
_START_TIMEOUT = 3.0
_PROBE_INTERVAL = 0.05
_INITIAL_USERS = 0xEFFFFFFD  # PROC_USER_INIT_INO of the kernel: the inode of the first user namespace
# RFC 1035: identifier 1, recursion desired, one question: the name servers of the root.
QUESTION = bytes.fromhex("0001 0100 0001 0000 0000 0000 00 0002 0001")


class Running:
    """A program that runs.

    Attributes:
        ended: a descriptor that is readable when the program has ended.
    """

    def __init__(self, command: Sequence[str], keep: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=keep)
        self.ended = os.pidfd_open(self._process.pid)
        self._stack = contextlib.ExitStack()
        self._stack.callback(os.close, self.ended)

    def hold(self, descriptor: int) -> None:
        """Keep a descriptor open until the program ends."""
        self._stack.callback(os.close, descriptor)

    def end(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._stack.close()


def installed() -> list[Way]:
    """Return the programs that are here, in the order in which they are tried."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return []
    return [way for way in _STARTS if shutil.which(way) and (way is not Way.PASTA or not _is_first_root())]


def start(way: Way, pid: int, probe: socket.socket) -> Running:
    """Start a program, and wait until the namespace has a way out.

    Args:
        way: one that `installed` returns.
        pid: a process in the namespace.
        probe: a datagram socket of the namespace.

    Raises:
        OSError: the program does not start, or does not get ready.
    """
    return _STARTS[way](pid, probe)


def _start_slirp(pid: int, _: socket.socket) -> Running:
    """Start slirp4netns(1). It ends with this process, by the pipe that both hold."""
    ready, notify = os.pipe()
    held, hold = os.pipe()
    command = [
        Way.SLIRP, "--configure", "--mtu=65520", "--disable-host-loopback",
        f"--ready-fd={notify}", f"--exit-fd={held}", str(pid), "tap0",
    ]  # fmt: skip
    try:
        running = Running(command, [notify, held])
        running.hold(hold)
    finally:
        os.close(notify)
        os.close(held)
    try:
        if not polling.readable(ready, _START_TIMEOUT) or os.read(ready, 1) != b"1":
            running.end()
            raise OSError(f"{Way.SLIRP} does not get ready")
    finally:
        os.close(ready)
    return running


def _start_pasta(pid: int, probe: socket.socket) -> Running:
    """Start pasta(1). Releases since 2024 end a second after the process `pid`.

    pasta says nothing when it is ready, and some releases resolve no names. So a resolver's answer shows that it works.
    """
    namespaces = Path(f"/proc/{pid}/ns")
    is_same = (namespaces / "user").samefile("/proc/self/ns/user")
    users = ["--netns-only"] if is_same else ["--userns", str(namespaces / "user")]
    closed = ["--no-map-gw", *(word for option in ("-t", "-u", "-T", "-U") for word in (option, "none"))]
    running = Running(
        [
            Way.PASTA, "--foreground", "--quiet", "--config-net", "--ipv4-only", *closed, "--mtu", "65520",
            "--address", _OWN, "--netmask", _PREFIX, "--gateway", _GATEWAY, "--dns-forward", RESOLVER,
            "--ns-ifname", "tap0", *users, "--netns", str(namespaces / "net"),
        ]
    )  # fmt: skip
    if not _resolves(probe, running.ended):
        running.end()
        raise OSError(f"{Way.PASTA} resolves no names")
    return running


def _resolves(probe: socket.socket, ended: int) -> bool:
    """Return whether a resolver answers, while the program runs."""
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # no route yet
            probe.sendto(QUESTION, (RESOLVER, 53))
        ready = polling.ready([probe.fileno(), ended], _PROBE_INTERVAL)
        if ended in ready:
            return False
        with contextlib.suppress(OSError):  # an error that ICMP has brought
            if probe.fileno() in ready and probe.recv(len(QUESTION))[:2] == QUESTION[:2]:
                return True
    return False


def _is_first_root() -> bool:
    """Return whether this process is root of the machine: pasta then becomes nobody, who can't open the namespace."""
    return os.geteuid() == 0 and Path("/proc/self/ns/user").stat().st_ino == _INITIAL_USERS


_STARTS: dict[Way, Callable[[int, socket.socket], Running]] = {Way.SLIRP: _start_slirp, Way.PASTA: _start_pasta}
