"""The requests to the supervisor of a local cluster, and its view of the cluster. Each is one message of `ipc`.

A request may come from another version of tfk8s, or from anything else that the user runs. So `parse` checks each
request before the supervisor keeps any part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tfk8s.backends.local.record import Record
from tfk8s.backends.plain_data import as_plain, from_plain
from tfk8s.task import ipc

T = TypeVar("T")
VERSION = 3  # of the requests and the answers; another number for each change of their fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe:
    """Asks for a `Snapshot`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """Asks for a descriptor: a stream to the server of `task`, from inside the cluster's network."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Restarts a task; None restarts all tasks."""

    task: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Changes the numbers of tasks to those of `record`."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScript:
    """Runs a script with the descriptors of the message.

    The answer is {exit} or {error}, when the script ends; before that {cluster}, why the cluster ends.

    Attributes:
        fresh: whether the script needs an interpreter of its own.
        python: the interpreter.
        folder: the working folder.
        umask: the umask.
        arguments: the arguments of the runner.
        progress: the file for the script's progress.
        environment: the whole environment.
    """

    fresh: bool
    python: str
    folder: str
    umask: int
    arguments: list[str]
    progress: str
    environment: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Ends the cluster; the answer comes when all processes have ended.

    Attributes:
        reason: why the cluster ends, for the users of its scripts; continues `cluster "NAME" …`.
        hurry: kill what still saves.
    """

    reason: str
    hurry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Holds the lease of the cluster until the connection's end. The answer says at once whether there is a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Ends the lease of the cluster, if it has a lease; the cluster stays."""


Request = Observe | Dial | Restart | Scale | RunScript | Stop | Hold | Keep
KINDS: Mapping[str, type[Request]] = {
    "observe": Observe, "dial": Dial, "restart": Restart, "scale": Scale, "run": RunScript, "stop": Stop,
    "hold": Hold, "keep": Keep,
}  # fmt: skip


class BadRequest(Exception):
    """A message is no request of this version. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The supervisor's view of the cluster at one moment.

    Attributes:
        record: the cluster's record.
        tasks: `TaskProcess.describe` of each task, in the record's order.
        scripts: `ForkedScripts.describe`.
        idle_since: the end of the last session and script, in seconds since the epoch; None without a limit.
        holders: the number of `run`s that hold the cluster's lease; the cluster ends with the last of them.
        isolation: who can connect to the servers.
        way_out: the way to other networks.
        proxy: the variables that lead a command to the supervisor's proxy.
    """

    record: Record
    tasks: list[dict[str, Any]]
    scripts: list[dict[str, Any]]
    idle_since: float | None
    holders: int
    isolation: str
    way_out: str
    proxy: dict[str, str]


def to_message(value: Request | Snapshot) -> ipc.Message:
    """Return a request or a snapshot as plain data."""
    name = next((name for name, kind in KINDS.items() if isinstance(value, kind)), "snapshot")
    plain = as_plain(value)
    if isinstance(value, Scale | Snapshot):
        plain["record"] = value.record.to_dict()
    return {"do": name, "version": VERSION, **plain}


def parse(message: ipc.Message) -> Request:
    """Return the request in a message.

    Raises:
        BadRequest: the message is no request of this version.
    """
    name = str(message.get("do"))
    if name not in KINDS:
        raise BadRequest(f"there is no request {name!r}")
    return _read(KINDS[name], message)


def parse_snapshot(message: ipc.Message) -> Snapshot:
    """Return the snapshot in the answer to `Observe`.

    Raises:
        BadRequest: the message is no snapshot of this version.
    """
    return _read(Snapshot, message)


def _read(kind: type[T], message: ipc.Message) -> T:
    if message.get("version") != VERSION and kind is not Stop:  # each version can end a cluster
        raise BadRequest(f"this is version {VERSION} of the supervisor's messages, and not {message.get('version')!r}")
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {name: value for name, value in message.items() if name in names}
    try:
        if "record" in values:
            values["record"] = Record.from_dict(values["record"])
        return from_plain(kind, values)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"it has a wrong field: {error}") from error
