"""The file in a local cluster's folder that says that the cluster is suspended, or about to be."""

from __future__ import annotations

import time

from tfk8s.backends.local.state import Folder
from tfk8s.backends.own_folder import writable
from tfk8s.core.lifetime import Suspension

_NAME = "suspended.json"


def read(folder: Folder) -> Suspension | None:
    """Return since when and by whom a cluster is suspended; None if it is not."""
    try:
        return Suspension.parse((folder.path / _NAME).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):  # damaged, and there all the same
        return Suspension(0.0, "somebody")


def write(folder: Folder, by: str) -> None:
    """Record that a cluster is suspended from now on.

    Raises:
        ClusterError: the folder can't be written.
    """
    with writable(folder.path):
        folder.write(_NAME, Suspension(time.time(), by)._asdict())


def remove(folder: Folder) -> None:
    """Record that a cluster is not suspended any more."""
    (folder.path / _NAME).unlink(missing_ok=True)
