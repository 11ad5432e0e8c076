"""The files of tasks in a folder, to be read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tfk8s.errors import InvalidInput
from tfk8s.render import package_files


def unpack(folder: Path) -> str:
    """Write the files that the ConfigMap's zip has into a new folder; return the SHA-256 of the zip.

    Raises:
        InvalidInput: the folder exists, or can't be written.
    """
    try:
        folder.mkdir(parents=True)
        for path, text in package_files.of_tasks().items():
            target = folder / "tfk8s" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise InvalidInput(f'"{folder}" already exists', help="name a new folder") from error
    except OSError as error:
        raise InvalidInput(f'can\'t write into "{folder}": {error.strerror}') from error
    return hashlib.sha256(package_files.zip_of_tasks()).hexdigest()
