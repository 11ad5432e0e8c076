"""The files that `run --get` copies from programs: `TASK:PATH:LOCAL` as users write it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tfk8s.backends import downloads
from tfk8s.backends.parts import RunFiles
from tfk8s.backends.protocol import Backend
from tfk8s.core.job_kinds import program_jobs
from tfk8s.core.script import Download, Outcome
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.task_names import parse_task
from tfk8s.errors import InvalidInput, quoted

_OF_TASK = re.compile(r"(([^/:]+)/-?\d+)(?::(.*))?", re.DOTALL)


def parse(texts: Sequence[str], job_file: JobFile, *, keep: bool = False) -> dict[Task, list[Download]]:
    """Return the files by task. Without TASK, the first task of the master's job has the file.

    Args:
        texts: `PATH`, `PATH:LOCAL`, `TASK:PATH` or `TASK:PATH:LOCAL`.
        job_file: the cluster's, which has programs if there are texts.
        keep: whether the cluster stays after the run.

    Raises:
        InvalidInput: there is no such job or task, the task has no program or no path, the cluster stays, or
            `downloads.parse` refuses the rest.
    """
    if texts and keep:
        raise InvalidInput(
            "--keep can't be combined with --get of programs: their pods would wait for this command at each later end"
        )
    split = [_split(text, job_file) for text in texts]
    tasks, files = [task for task, _ in split], downloads.parse([path for _, path in split])
    programs = [job.name for job in program_jobs(job_file)]
    wanted: dict[Task, list[Download]] = {}
    for task, file, text in zip(tasks, files, texts, strict=True):
        if task.job not in programs:
            raise InvalidInput(
                f"--get {quoted(text)}: {task} has no program",
                help=f"name a task that has one, for example --get {programs[0]}/0:{file.path}",
            )
        wanted.setdefault(task, []).append(file)
    return wanted


def _split(text: str, job_file: JobFile) -> tuple[Task, str]:
    """Return the task that is named before a path, or the first of the master's job; and the rest."""
    found = _OF_TASK.fullmatch(text)
    if not found:
        return job_file.master_task, text
    if all(job.name != found[2] for job in job_file.jobs):
        raise InvalidInput(
            f'--get {quoted(text)}: the job file has no job "{found[2]}"', help=f"write ./{text} if that is a path"
        )
    if not found[3]:
        raise InvalidInput(f"--get {quoted(text)} names no file", help=f"for example --get {found[1]}:model")
    return parse_task(found[1], list(job_file)), found[3]


def with_variables(job_file: JobFile, environment: Mapping[str, Mapping[str, str]]) -> JobFile:
    """Return a job file whose jobs have more variables."""
    jobs = (replace(job, env={**job.env, **environment.get(job.name, {})}) for job in job_file.jobs)
    return replace(job_file, jobs=tuple(jobs)) if environment else job_file


class CopiedFiles:
    """The files that programs leave, during a run.

    Args:
        left: the backend's half; None without files.

    Attributes:
        environment: the variables of `RunFiles.environment`.
    """

    def __init__(self, left: RunFiles | None) -> None:
        self._left = left
        self._problems: list[str] = []
        self.environment = left.environment if left else {}

    def settle(self) -> None:
        """Wait for the copies that are under way, when the run has ended, before other programs are ended."""
        if self._left is not None:
            self._problems = self._left.finish()

    def report(self, exit_code: int) -> None:
        """Report what was not copied.

        Raises:
            ClusterError: the run succeeded, but not everything was copied.
        """
        downloads.report(self._problems, Outcome(exit_code), "the run")


@contextlib.contextmanager
def copied(backend: Backend, job_file: JobFile, wanted: Mapping[Task, Sequence[Download]]) -> Iterator[CopiedFiles]:
    """Copy files of programs when they end, in a `with` in which the caller makes the cluster.

    Raises:
        ClusterError: this user may not copy files of programs.
    """
    if not wanted:
        yield CopiedFiles(None)
        return
    with backend.files.left(job_file, wanted) as left:
        yield CopiedFiles(left)


def running_already(name: str, flags: str) -> InvalidInput:
    """Return the error for `run --get` with a cluster whose programs wait for nobody when they end."""
    return InvalidInput(
        f'cluster "{name}" exists, and its programs end without waiting for a copy of their files',
        help=f"tfk8s down{flags} {name} removes the cluster; or copy files of running tasks with tfk8s cp",
    )
