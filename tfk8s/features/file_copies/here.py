"""Copies files between this machine and tasks, as `tfk8s cp` names them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tfk8s.backends.downloads import require_folders
from tfk8s.core.script import Download
from tfk8s.core.task_names import parse_task
from tfk8s.errors import ClusterError, InvalidInput, quoted
from tfk8s.task.files import received

if TYPE_CHECKING:
    from tfk8s.cluster.handle import Cluster

_REMOTE = re.compile(r"([^/:]+/\d+):(.+)", re.DOTALL)
_EXAMPLE = "for example: tfk8s cp mnist worker/0:/ckpt/model model"


def copy(cluster: Cluster, source: str, target: str) -> None:
    """Copy a file or a folder. A file replaces a file; a folder adds its files to a folder.

    Args:
        cluster: the cluster.
        source: a path of this machine, or "worker/0:PATH".
        target: the other of both. If it is a folder, a file goes into it.

    Raises:
        InvalidInput: none of both names a task, or both do; or there is no such task, file or system.
        ClusterError: not everything was copied; says why.
    """
    there, here = _REMOTE.fullmatch(source), _REMOTE.fullmatch(target)
    if bool(there) == bool(here):
        raise InvalidInput("one of SOURCE and TARGET is a path of a task, TASK:PATH", help=_EXAMPLE)
    require_folders("copies of files")
    received.check_limits()
    tasks = [status.task for status in cluster.tasks()]
    if there:
        problems = cluster.backend.files.fetch(
            cluster.name, parse_task(there[1], tasks), Download(there[2], Path(target))
        )
        if problems:
            raise ClusterError("; ".join(problems))
    elif here:
        if not Path(source).exists():
            raise InvalidInput(f"there is no file or folder {quoted(source)}")
        cluster.backend.files.send(cluster.name, parse_task(here[1], tasks), Path(source), here[2])
