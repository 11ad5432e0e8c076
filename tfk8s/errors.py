"""The errors that tfk8s raises on purpose, as one tree.

    Tfk8sError                 exit  what happened
    ├── InvalidInput             2   the user's input can't be used; nothing was changed
    │   ├── JobFileError         2     a job file has problems, each with its position
    │   ├── NoSuchCluster        2     no cluster has this name
    │   ├── DeviceMissing        2     a graph names a device that the task does not have
    │   └── GraphTooLarge        2     a graph, or the fed or fetched data, exceeds 2 GB
    ├── ClusterError             1   the cluster failed, or can't be reached
    │   ├── BackendUnreachable   1     the API server or the supervisor does not respond
    │   ├── ScriptLost           1     a script was lost with its pod or its node
    │   ├── OutOfMemory          1     a task has too little memory for a graph's tensors
    │   └── VersionSkew          1     the tasks have different versions of TensorFlow
    ├── TaskError                3   a task failed
    │   ├── TaskUnreachable      3     a task does not respond
    │   ├── TaskLost             3     a task of a session is gone
    │   └── TaskRestarted        3     a task has restarted, without its sessions and variables
    └── WaitTimeout            124   a wait reached its limit

A message says what failed and why, with names in quotes. `help` says what to do next, as a command if possible.
The code that calls another library translates the library's errors, once, with `raise … from`.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

_SCREEN = 120  # characters of a line


class Tfk8sError(Exception):
    """The base class of all errors of tfk8s.

    Attributes:
        exit_code: the exit code of the command line.
        help: the next step for the user, or None.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, help: str | None = None) -> None:  # noqa: A002 - rustc's word for it
        super().__init__(message)
        self.help = help
        if help is not None:
            self.add_note(f"help: {help}")  # a traceback of Python shows notes


class InvalidInput(Tfk8sError):
    """The user's input can't be used. Nothing was changed."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a job file.

    Attributes:
        code: a stable word, such as "bad-job-name".
        message: one sentence, without a full stop.
        path: the path in the data, such as "jobs.worker.tasks"; "" for the file itself.
        line, column: the position in the text, from 1; 0 if the problem has no position. Of an option, the line is the
            number of the value.
        length: the number of characters to underline.
        source: the text of the line.
        label: the text beside the caret, which says what was expected.
        help: the correction, or None.
        option: the option of the command line that gave the value, such as "--set"; "" for the job file.
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
    option: str = ""


class JobFileError(InvalidInput):
    """A job file has problems. The error has all of them, in the order of the file."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = tuple(problems)
        super().__init__("\n\n".join(render_problem(file, problem) for problem in self.problems))


class NoSuchCluster(InvalidInput):
    """No cluster has this name in this place."""


class DeviceMissing(InvalidInput):
    """A graph pins an operation to a device that the cluster does not have."""


class GraphTooLarge(InvalidInput):
    """A graph, or the data that it is fed or that is fetched, exceeds 2 GB, the limit of one message."""


class ClusterError(Tfk8sError):
    """The cluster failed, or can't be reached."""


class BackendUnreachable(ClusterError):
    """The API server or the supervisor does not respond. The cluster itself may still be running."""


class ScriptLost(ClusterError):
    """A script was lost with its pod or its node, for a reason outside of the script."""


class OutOfMemory(ClusterError):
    """A task, or its GPU, has too little memory for a graph's tensors. All tasks keep running."""


class VersionSkew(ClusterError):
    """The tasks have different versions of TensorFlow, which TensorFlow does not support."""


class TaskError(Tfk8sError):
    """A task failed."""

    exit_code = 3


class TaskUnreachable(TaskError):
    """A task does not respond."""


class TaskLost(TaskError):
    """A task of a session is gone."""


class TaskRestarted(TaskError):
    """A task has restarted. Its earlier sessions and its variables are lost."""


class WaitTimeout(Tfk8sError):
    """A wait reached its limit."""

    exit_code = 124


def render_problem(file: str, problem: Problem) -> str:
    """Return the problem as text: headline, position, the line with a caret, help."""
    lines = [f"error[{problem.code}]: {problem.message}"]
    margin = " " * len(str(problem.line or ""))
    if problem.line:
        source, caret = _excerpt(problem)
        lines += [
            f" {margin}--> {problem.option or file}:{problem.line}:{problem.column}",
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
    """Return text in quotes on one line, with escapes for invisible characters, and long text shortened."""
    if len(text) > limit:
        text = f"{text[: limit // 2]}…{text[-limit // 4 :]}"
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) + '"'


def submit_advice() -> str:
    """Return how to run a script beside the tasks: in a notebook, by the handle that its cells have."""
    if "ipykernel" in sys.modules:
        return 'write the code into a file, and call cluster.submit("train.py"), which runs the file beside the tasks'
    return "run the script with `tfk8s submit NAME SCRIPT`, which runs it beside the tasks"


def there_are(names: Sequence[str], kind: str) -> str:
    """Return the part of a message that lists the names that exist of a kind of thing, such as "cluster"."""
    if not names:
        return f"there are no {kind}s"
    return f"the {kind}s are {', '.join(names)}" if len(names) > 1 else f"the only {kind} is {names[0]}"


def listed(names: Sequence[str], most: int) -> str:
    """Return at most so many names for a message, and how many more there are: "a, b and 3 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _excerpt(problem: Problem) -> tuple[str, str]:
    """Return the part of the line that fits a screen, and the carets under it."""
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
    """Return the number of a terminal's columns for a text."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
