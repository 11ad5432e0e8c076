"""The files of tasks on this machine, which are this machine's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tfk8s.backends import downloads
from tfk8s.backends.protocol import Absent
from tfk8s.core.script import Download
from tfk8s.core.spec import JobFile, Task
from tfk8s.errors import InvalidInput


class LocalFiles(Absent):
    """Copies what programs leave. Other files of tasks need no copy.

    Args:
        find: finds a cluster by its name.
    """

    def __init__(self, find: Callable[[str], object]) -> None:
        super().__init__(find, lambda *_: InvalidInput(
            "tasks of a cluster on this machine have the files of this machine", help="copy them with cp"
        ))  # fmt: skip

    @contextmanager
    def left(self, job_file: JobFile, wanted: Mapping[Task, Sequence[Download]]) -> Iterator[_FilesHere]:
        """Copy the files of programs at the end of the run, which leaves them where they are."""
        yield _FilesHere(job_file, wanted)


class _FilesHere:
    """The files of a run's programs. Relative paths begin in the folder of the job file, where programs run.

    Attributes:
        environment: no variables.
    """

    environment: Mapping[str, Mapping[str, str]] = {}

    def __init__(self, job_file: JobFile, wanted: Mapping[Task, Sequence[Download]]) -> None:
        self._programs, self._wanted = {job.name: job.program for job in job_file.jobs}, wanted

    def finish(self) -> list[str]:
        """Copy the files; return what was not copied, with the reasons."""
        problems = []
        for task, files in self._wanted.items():
            program = self._programs[task.job]
            folder = Path(program.folder if program else "")
            problems += [f"{task}: {problem}" for problem in downloads.copy_all(files, folder)]
        return problems
