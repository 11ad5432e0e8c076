"""The command `tfk8s cp`."""

from __future__ import annotations

from typing import Annotated

import typer

from tfk8s.cli import options
from tfk8s.features.file_copies.here import copy


def cp(
    name: options.Name,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="PATH or TASK:PATH.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="TASK:PATH or PATH.", show_default=False)],
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Copy a file or a folder from a task's container, or to it.

    A relative PATH of a task begins in the container's working folder. A volume has its path in each task that mounts
    the volume. A file replaces a file, or goes into a folder; a folder adds its files to a folder. Links are left out.

    Examples:
        tfk8s cp mnist worker/0:/ckpt/model model
        tfk8s cp mnist data.csv worker/0:/data/data.csv
    """
    copy(options.find_cluster(name, local, context, namespace), source, target)
