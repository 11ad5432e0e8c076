"""`tfk8s.path()`: the files of a volume, wherever a program or a script runs.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import json
import os
import posixpath


def path(volume_path: str) -> str:
    """Return where the files at a path of a volume are: on Kubernetes the path itself, here the volume's folder.

    Args:
        volume_path: the `path` of a volume in the job file ("/ckpt"), or a path below it ("/ckpt/run-1").

    Returns:
        The path in the folder that the volume names for clusters on this machine. It is valid outside of the cluster,
        too. Without such a folder, and in other programs, `volume_path`.
    """
    wanted = posixpath.normpath(volume_path)
    folders: dict[str, str] = json.loads(os.environ.get("TFK8S_FOLDERS", "{}"))
    for place in sorted(folders, key=len, reverse=True):
        if wanted == place or wanted.startswith(f"{place.rstrip('/')}/"):
            return os.path.normpath(os.path.join(folders[place], os.path.relpath(wanted, place)))  # noqa: PTH118
    return volume_path
