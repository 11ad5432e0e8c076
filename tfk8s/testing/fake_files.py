"""The files of the tasks of a `FakeBackend`, which do not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tfk8s.core.script import Download
from tfk8s.core.spec import JobFile, Task


class FakeFiles:
    """Records the copies of files. A path that ends in "none" is missing.

    Args:
        check: called with the name of each cluster.
        calls: gets each call, as text.

    Attributes:
        environment: the variables that programs with files get, by job.
    """

    environment: Mapping[str, Mapping[str, str]] = {}

    def __init__(self, check: Callable[[str], object], calls: list[str]) -> None:
        self._check, self._calls = check, calls
        self._wanted: Mapping[Task, Sequence[Download]] = {}

    def fetch(self, name: str, task: Task, download: Download) -> list[str]:
        """Record the call."""
        self._check(name)
        self._calls.append(f"fetch {name} {task} {download}")
        return _missing(download)

    def send(self, name: str, task: Task, local: Path, path: str) -> None:
        """Record the call."""
        self._check(name)
        self._calls.append(f"send {name} {task} {local} {path}")

    @contextmanager
    def left(self, job_file: JobFile, wanted: Mapping[Task, Sequence[Download]]) -> Iterator[FakeFiles]:
        """Record the call, and the end of the `with`."""
        self._calls.append(f"copy files of {job_file.name} {' '.join(map(str, wanted))}")
        self._wanted = wanted
        yield self
        self._calls.append(f"end copies of {job_file.name}")

    def finish(self) -> list[str]:
        """Return the files that are missing."""
        return [f"{task}: {text}" for task, files in self._wanted.items() for file in files for text in _missing(file)]


def _missing(download: Download) -> list[str]:
    return [f'"{download.path}" was not copied'] if download.path.endswith("none") else []
