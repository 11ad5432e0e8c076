"""Every error that tfk8s raises on purpose.

    Tfk8sError                 exit  what happened
    ├── InvalidInput             2   the user's input can't be used, nothing was changed
    │   ├── JobFileError         2     a job file has problems, each with its place
    │   ├── NoSuchCluster        2     a name that no cluster has
    │   ├── DeviceMissing        2     a graph names a device that its task does not have
    │   └── GraphTooLarge        2     a graph, or what is fed or fetched, is over 2 GB
    ├── ClusterError             1   the cluster failed, or could not be reached
    │   ├── BackendUnreachable   1     what runs the cluster does not answer, or can't for now
    │   ├── ScriptLost           1     a script was taken away, with its pod or its node
    │   ├── OutOfMemory          1     a task has too little memory for what a graph makes
    │   └── VersionSkew          1     the tasks have different versions of TensorFlow
    ├── TaskError                3   a task failed
    │   ├── TaskUnreachable      3     a task does not answer
    │   ├── TaskLost             3     a task that answered is gone
    │   └── TaskRestarted        3     a task is another one now, without the sessions and variables of the first
    └── WaitTimeout            124   a wait reached its limit

A message says what failed, with the name in quotes, and why. `help` says what to do next, as a command
where there is one. Errors of other libraries are translated once, where they enter, with `raise … from`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

_SCREEN = 120  # characters of a line that are shown


class Tfk8sError(Exception):
    """The base of all of them.

    Attributes:
        exit_code: what the command line exits with.
        help: what to do next, or None.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, help: str | None = None) -> None:  # noqa: A002 - rustc's word for it
        super().__init__(message)
        self.help = help


class InvalidInput(Tfk8sError):
    """The user's input can't be used; nothing was changed."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a job file.

    Attributes:
        code: a stable word, such as "bad-job-name".
        message: one sentence, without a full stop.
        path: where in the data, such as "jobs.worker.tasks"; "" for the file itself.
        line, column: where in the text, from 1; 0 when the file has no such place.
        length: how many characters of the line are meant.
        source: the line itself.
        label: what was expected, said beside the caret.
        help: what to write instead, or None.
    """

    code: str
    message: str
    path: str = ""
    line: int = 0
    column: int = 0
    length: int = 1
    source: str = ""
    label: str = ""
    help: str | None = None


class JobFileError(InvalidInput):
    """A job file has problems: all of them, in the order of the file."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        super().__init__("\n\n".join(render_problem(file, problem) for problem in self.problems))


class NoSuchCluster(InvalidInput):
    """No cluster has that name here."""


class DeviceMissing(InvalidInput):
    """A graph pins an operation to a device that the cluster does not have."""


class GraphTooLarge(InvalidInput):
    """A graph, or what is fed to it or fetched from it, is over 2 GB: more than one message can hold."""


class ClusterError(Tfk8sError):
    """The cluster failed, or could not be reached."""


class BackendUnreachable(ClusterError):
    """What runs the cluster does not answer, or can't for now: it may come back, and the cluster may well go on."""


class ScriptLost(ClusterError):
    """A script was taken away, with its pod or its node, for reasons that have nothing to do with it."""


class OutOfMemory(ClusterError):
    """A task, or its GPU, has too little memory for what a graph makes; it goes on, and so do the others."""


class VersionSkew(ClusterError):
    """The tasks have different versions of TensorFlow, which TensorFlow does not support."""


class TaskError(Tfk8sError):
    """A task failed."""

    exit_code = 3


class TaskUnreachable(TaskError):
    """A task does not answer."""


class TaskLost(TaskError):
    """A task that took part in a session is gone."""


class TaskRestarted(TaskError):
    """A task was started again: sessions opened before are lost, and so are the variables that it kept."""


class WaitTimeout(Tfk8sError):
    """A wait reached its limit."""

    exit_code = 124


def render_problem(file: str, problem: Problem) -> str:
    """Return the problem as text: headline, place, the line with a caret, help."""
    lines = [f"error[{problem.code}]: {problem.message}"]
    margin = " " * len(str(problem.line or ""))
    if problem.line:
        source, caret = _excerpt(problem)
        lines += [
            f" {margin}--> {file}:{problem.line}:{problem.column}",
            f" {margin} |",
            f" {problem.line} | {source}".rstrip(),
            f" {margin} | {caret} {problem.label}".rstrip(),
        ]
    else:
        lines.append(f" --> {file}")
    if problem.help:
        lines.append(f" {margin} = help: {problem.help}")
    return "\n".join(lines)


def quoted(text: str, limit: int = 80) -> str:
    """Return text in quotes, on one line, with what can't be seen as escapes, and the middle of long text left out."""
    if len(text) > limit:
        text = f"{text[: limit // 2]}…{text[-limit // 4 :]}"
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) + '"'


def there_are(names: Sequence[str]) -> str:
    """Return what there is instead of a name that is not."""
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(names) or 'none'}"


def _excerpt(problem: Problem) -> tuple[str, str]:
    """Return the part of the line that fits a screen, with what can't be seen made visible, and the carets under it."""
    start = max(0, problem.column - 1 - _SCREEN // 2) if len(problem.source) > _SCREEN else 0
    end = start + _SCREEN
    cut = "…" if start else ""
    before = cut + _visible(problem.source[start : problem.column - 1])
    meant = _visible(problem.source[problem.column - 1 : min(problem.column - 1 + problem.length, end)])
    after = _visible(problem.source[problem.column - 1 + len(meant) : end]) + "…" * (len(problem.source) > end)
    return before + meant + after, " " * _width(before) + "^" * max(1, _width(meant))


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else " " if c == "\t" else "\ufffd" for c in text)


def _width(text: str) -> int:
    """Return how many columns of a terminal text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
