"""The file in a local cluster's folder that says that the cluster is suspended, or about to be."""

from __future__ import annotations

import time
from typing import NamedTuple

from tfk8s.backends import suspended
from tfk8s.backends.local.state import Folder
from tfk8s.backends.own_folder import read_file, writable
from tfk8s.core.lifetime import BY_IDLE, Suspension, format_duration
from tfk8s.errors import ClusterError

_NAME = "suspended.json"


class End(NamedTuple):
    """The end of a cluster whose limit was reached while nothing ran.

    Attributes:
        reason: continues `cluster "NAME" has ended …`.
        moment: in seconds since the epoch.
    """

    reason: str
    moment: float


def read(folder: Folder) -> Suspension | None:
    """Return since when and by whom a cluster is suspended; None if it is not, or has reached a limit since then."""
    return None if end(folder) else _read(folder)


def end(folder: Folder) -> End | None:
    """Return the end of a suspended cluster that has reached a limit; None if it is not suspended, or has not.

    Nothing runs that could end, so whoever looks next finds the end.
    """
    wish = _read(folder)
    try:
        record = folder.read() if wish else None
    except ClusterError:  # damaged, which others say
        return None
    if wish is None or record is None:
        return None
    limits, now = record.job_file.limits, time.time()
    reason = suspended.why_over(limits, record.created, wish, now)
    return End(reason, min(now, suspended.end_of(limits, record.created, wish))) if reason else None


def _read(folder: Folder) -> Suspension | None:
    try:
        return Suspension.parse(read_file(folder.path / _NAME).decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):  # damaged, and there all the same
        return Suspension(0.0, "somebody")


def write(folder: Folder, by: str, idle: float = 0.0) -> None:
    """Record that a cluster is suspended from now on, by a person or after seconds without use.

    Raises:
        ClusterError: the folder can't be written.
    """
    with writable(folder.path):
        folder.write(_NAME, Suspension(time.time(), by, idle=idle)._asdict())


def write_idle(folder: Folder, idle: float) -> str:
    """Record that `idle` suspends a cluster; return the reason for the end of its processes, "" if the disk is full."""
    try:
        write(folder, BY_IDLE, idle)
    except ClusterError:
        return ""
    return f"for a suspension, idle for {format_duration(idle)}"


def remove(folder: Folder) -> None:
    """Record that a cluster is not suspended any more."""
    (folder.path / _NAME).unlink(missing_ok=True)
