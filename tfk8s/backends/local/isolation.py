"""The isolation of a local cluster: who can connect to the ports of its tasks.

A TensorFlow server listens on every interface and runs any graph for anyone. Three isolations are tried in this order:

    own network  the processes are in a network namespace, which no other process can enter
    loopback     the machine allows no namespace; all ports are bound to its loopback device
    none         the kernel can do neither, and the user insists
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfk8s.backends import interpreter
from tfk8s.backends.local import network_namespace
from tfk8s.backends.local.loopback import people, sockets
from tfk8s.backends.local.loopback.start import listening
from tfk8s.core.output.reason import telling_line

_START_FOLDER = str(Path(listening.__file__).parent)
_PATH = "PYTHONPATH"
_PROBE_TIMEOUT = 20.0
_INSIST = "--allow-exposed-ports"


class Kind(enum.StrEnum):
    """The kinds of isolation."""

    NAMESPACE = "own network"
    LOOPBACK = "loopback"
    NONE = "none"


class Refused(Exception):
    """This machine can't isolate a cluster well enough.

    Attributes:
        help: what the user can do.
    """

    def __init__(self, text: str, advice: str) -> None:
        super().__init__(text)
        self.help = advice


@dataclass(frozen=True, slots=True)
class Isolation:
    """The isolation of a cluster, and the reason why it is no better.

    Attributes:
        kind: the isolation.
        reason: why the cluster has no network of its own; "" if it has one.
    """

    kind: Kind = Kind.NAMESPACE
    reason: str = ""

    @property
    def is_shared(self) -> bool:
        """True if other clusters and programs have the same network."""
        return self.kind is not Kind.NAMESPACE

    @property
    def is_loopback(self) -> bool:
        """True if the cluster's ports have to be bound to the loopback device."""
        return self.kind is Kind.LOOPBACK

    def confined(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return variables with which a process of Python binds its ports at its start, if they have to be bound."""
        if not self.is_loopback:
            return dict(environment)
        before = environment.get(_PATH)  # an empty entry is the working folder, and an empty value is none
        folders = [folder for folder in before.split(os.pathsep) if folder != _START_FOLDER] if before else []
        return {**environment, _PATH: os.pathsep.join([_START_FOLDER, *folders])}

    def describe(self) -> str:
        """Return the isolation, with the other people who use this machine now."""
        who = people.who_else() if self.is_loopback else ""
        return f"{self}; {who}" if who else str(self)

    def refusal(self) -> Refused | None:
        """Return why nothing may start now: other people could connect. None if nothing is in the way."""
        if not self.is_loopback or not (who := people.who_else()):
            return None
        return Refused(
            f"the cluster's ports are on this machine's loopback device ({self.reason}), and {who}: they could "
            "connect, and run code as you",
            "allow network namespaces (`tfk8s doctor --local` says how), or use a container or a machine of your own; "
            f"{_INSIST} of `up` and `run` starts it all the same",
        )

    def __str__(self) -> str:
        if self.kind is Kind.NAMESPACE:
            return self.kind
        who = "other users of this machine" if self.kind is Kind.LOOPBACK else "all who can reach this machine"
        return f"{self.kind}: {who} can connect ({self.reason})"


OWN_NETWORK = Isolation()


def enter(*, insists: bool, prepare: Callable[[], None] = lambda: None) -> Isolation:
    """Isolate this process, which must have one thread, and its later children, as well as this machine can.

    Args:
        insists: the user accepts that others can connect, and does without a namespace.
        prepare: is called in the namespace, where this process may mount.

    Raises:
        Refused: others could connect, and the user does not insist.
    """
    reason = _INSIST
    if not insists:
        try:
            network_namespace.enter(prepare)
        except OSError as error:
            reason = f"no network namespace: {error.strerror or error}"
        else:
            return OWN_NETWORK
    try:
        require_loopback()
    except OSError as error:
        if insists:
            return Isolation(Kind.NONE, f"{reason}; ports can't be bound to loopback: {error.strerror or error}")
        raise Refused(
            f"can't create a network namespace ({reason.partition(': ')[2]}), and can't bind ports to the loopback "
            f"device ({error.strerror or error})",
            "without either, anyone who can reach a task's port can run code as you; --allow-exposed-ports starts the "
            "tasks all the same",
        ) from error
    isolation = Isolation(Kind.LOOPBACK, reason)
    if not insists and (refusal := isolation.refusal()):
        raise refusal
    return isolation


def probe() -> Isolation:
    """Return the isolation that a cluster would have, as another process finds it, which this does not change.

    Raises:
        Refused: others could connect.
    """
    command = interpreter.command(sys.executable, "tfk8s.backends.local.isolation")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT, check=False)
    try:
        answer = json.loads(ended.stdout)
    except ValueError:
        reason = telling_line(ended.stderr.splitlines()) or "unknown reason"
        raise Refused(f"the isolation of a cluster can't be found out: {reason}", "see the reason") from None
    if "error" in answer:
        raise Refused(answer["error"], answer["help"])
    return Isolation(Kind(answer["kind"]), answer["reason"])


def require_loopback() -> None:
    """Check that this kernel binds ports to the loopback device, and shows that they are.

    Raises:
        OSError: it does not.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        listening.bind(server.fileno())
        inode = os.fstat(server.fileno()).st_ino
        devices = [item.device for item in sockets.listeners() if item.inode == inode]
    if devices != [socket.if_nametoindex("lo")]:
        raise OSError("the kernel does not show the device of a port")


def main() -> None:
    """Isolate this process, and print the isolation as JSON, or why there is none."""
    try:
        answer = dataclasses.asdict(enter(insists=False))
    except Refused as refusal:
        answer = {"error": str(refusal), "help": refusal.help}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
