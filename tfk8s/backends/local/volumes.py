"""The folders of this machine that are the volumes of a local cluster."""

from __future__ import annotations

from pathlib import Path

from tfk8s.core.spec import JobFile
from tfk8s.core.storage import claims
from tfk8s.errors import InvalidInput
from tfk8s.log import log


def check(job_file: JobFile) -> None:
    """Raise an InvalidInput if a cluster on this machine can't have the folders of a job file.

    All tasks and scripts of a local cluster see the same files, so a path has one folder.
    """
    folders: dict[str, str] = {}
    for volume in claims.volumes(job_file):
        if not volume.folder:
            continue
        if folders.setdefault(volume.path, volume.folder) != volume.folder:
            raise InvalidInput(
                f'two jobs have other folders at "{volume.path}": {folders[volume.path]} and {volume.folder}',
                help="on this machine, all tasks see the same files: use two paths",
            )
        if Path(volume.folder).exists() and not Path(volume.folder).is_dir():
            raise InvalidInput(f"{volume.folder}, the folder of the volume at {volume.path}, is a file")
        if volume.read_only and not Path(volume.folder).exists():
            raise InvalidInput(
                f"there is no folder {volume.folder}, which the volume at {volume.path} only reads",
                help="a folder is relative to the folder of the job file",
            )


def make_folders(job_file: JobFile) -> None:
    """Make the folders that are missing, and tell which volumes have none on this machine.

    Raises:
        InvalidInput: a folder can't be made.
    """
    volumes = claims.volumes(job_file)
    for volume in volumes:
        try:
            if volume.folder:
                Path(volume.folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(
                f"the folder {volume.folder} of the volume at {volume.path} can't be made: {error.strerror}"
            ) from error
    without = dict.fromkeys(f"{volume.path} ({volume.source})" for volume in volumes if not volume.folder)
    if without:
        log.warning("volumes without a folder are not there on this machine: %s", ", ".join(without))
