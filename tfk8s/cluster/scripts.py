"""A session script and how to run it, as users give it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfk8s.core.script import Script
from tfk8s.errors import InvalidInput


def make_script(
    path: str | Path,
    arguments: Sequence[str] = (),
    *,
    tf1: bool = False,
    fresh: bool = False,
    isolate: bool = False,
    environment: Mapping[str, str] | None = None,
    requirements: str | Path | None = None,
    gpus: int = 0,
    without: Sequence[str] = (),
) -> Script:
    """Return a script and how to run it, as `Cluster.submit` takes it.

    Raises:
        InvalidInput: there is no such script, or no such file of requirements.
    """
    if requirements is not None and not Path(requirements).is_file():
        raise InvalidInput(f'there is no file of requirements "{requirements}"')
    left_out = {"TFK8S_WITHOUT": ",".join(without)} if without else {}
    return Script(
        path=require_script(path), arguments=tuple(arguments), tf1=tf1, fresh=fresh, isolate=isolate,
        environment={**(environment or {}), **left_out}, gpus=gpus,
        requirements=Path(requirements) if requirements else None,
    )  # fmt: skip


def require_script(path: str | Path) -> Path:
    """Return the path of a script.

    Raises:
        InvalidInput: it isn't there, is no file, or can't be read.
    """
    path = Path(path)
    if path.is_dir():
        raise InvalidInput(f'"{path}" is a folder, not a script', help="name the Python file in it")
    if not path.exists():
        raise InvalidInput(f'there is no script "{path}"')
    if not path.is_file():
        raise InvalidInput(f'"{path}" is a pipe or a device, not a script', help="write the script to a file")
    if not os.access(path, os.R_OK):
        raise InvalidInput(f'script "{path}" can\'t be read: permission denied')
    return path
