"""Values of the command line that replace values of a job file: `--set PATH=VALUE` and `--env NAME=VALUE`.

A path is written as messages write it: `jobs.worker.tasks`, `volumes[0].claim`, `labels["example.com/team"]`. A value
is YAML, such as `4`, `8Gi` or `[]`. The settings follow the file's lines in the document, so that the same checks find
and show their problems.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tfk8s.errors import InvalidInput, quoted, there_are
from tfk8s.jobfile import reader
from tfk8s.jobfile.document import Document, Location, Path, dotted
from tfk8s.jobfile.schema import JOB_FILE
from tfk8s.jobfile.syntax import nearest

_STEP = re.compile(r'\.?([A-Za-z0-9_-]+)|\[([0-9]{1,4})\]|\[("(?:[^"\\]|\\.)*")\]')


class Setting(NamedTuple):
    """A value for one field.

    Attributes:
        option: the option of the command line.
        path: the field.
        value: the value: of `--set` in YAML, on one line; of `--env` the text itself.
        shown: the option's argument, as messages show it.
        start: the position of the value in `shown`.
    """

    option: str
    path: Path
    value: str
    shown: str
    start: int


def parse(text: str) -> Setting:
    """Parse the argument of `--set`.

    Raises:
        InvalidInput: the text is no PATH=VALUE.
    """
    path: list[str | int] = []
    position = 0
    with contextlib.suppress(ValueError):  # an escape that JSON does not have: the name remains, and is no "="
        while match := _STEP.match(text, position):
            name, index, quoted_name = match.groups()
            path.append(int(index) if index else json.loads(quoted_name) if quoted_name else name)
            position = match.end()
    if not path or text[position : position + 1] != "=" or text[0] in ".[" or "\n" in text or "\r" in text:
        message = f"--set {quoted(text)} sets no field"
        raise InvalidInput(message, help="write PATH=VALUE on one line, such as --set jobs.worker.tasks=4")
    value = text[position + 1 :] or '""'
    return Setting("--set", tuple(path), value, text, position + 1)


def parse_variable(text: str, environment: Mapping[str, str]) -> Setting:
    """Parse the argument of `--env`, NAME=VALUE or NAME. Messages hide the variable's value.

    Args:
        text: the argument.
        environment: has the values of variables without a VALUE.

    Raises:
        InvalidInput: a value is missing, or no text.
    """
    name, equals, value = text.partition("=")
    if not equals:
        if name not in environment:
            message = f"this shell has no environment variable {quoted(name)}"
            raise InvalidInput(message, help=f"export the variable, or write --env {name}=VALUE")
        value = environment[name]
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidInput(f"the value of the environment variable {quoted(name)} is not UTF-8")
    return Setting("--env", ("env", name), value, f"{name}=…", len(name) + 1)


def parse_node(name: str) -> Setting:
    """Return the setting of `--avoid NODE`, which adds a node to those that the job file avoids."""
    return Setting("--avoid", ("avoid",), name, name, 0)


def apply(document: Document, settings: Iterable[Setting]) -> None:
    """Replace values of a complete document, or add the problems of the settings to it. A later setting wins."""
    for setting in settings:
        document.settings.append(setting.option)
        document.lines.append(setting.shown)
        for path in _paths(document, setting):
            _put(document, path, setting)


def _paths(document: Document, setting: Setting) -> list[Path]:
    """Return the fields that a setting sets: `jobs` may be left out, and a variable replaces those of jobs."""
    path, jobs = setting.path, _get(document, ("jobs",))
    if setting.option == "--avoid":
        avoided = _get(document, path)
        known = avoided if isinstance(avoided, list) else []
        return [] if setting.value in known else [(*path, len(known))]
    names = jobs if isinstance(jobs, dict) else {}
    if setting.option == "--env":
        of_jobs = [("jobs", job, *path) for job in names if _get(document, ("jobs", job, *path)) is not None]
        return [path, *of_jobs]
    return [path if path[0] in JOB_FILE.keys or path[0] not in names else ("jobs", *path)]


def _put(document: Document, path: Path, setting: Setting) -> None:
    line = len(document.lines)
    value = _read(setting)
    here = Location(line, 1, max(1, setting.start - 1))
    if value.problems:
        document.problems += [
            dataclasses.replace(
                problem, path=dotted(path), option=setting.option, line=len(document.settings),
                column=problem.column + setting.start, source=setting.shown,
            )
            for problem in value.problems
        ]  # fmt: skip
        return
    parent = _make_parents(document, path, here) if _is_known(document, path, here) else None
    if parent is None:
        return
    _forget(document, path)
    _set(parent, path[-1], value.data)
    document.keys[path] = here
    document.keys.update({(*path, *place): _moved(at, line, setting.start) for place, at in value.keys.items()})
    document.values.update({(*path, *place): _moved(at, line, setting.start) for place, at in value.values.items()})


def _read(setting: Setting) -> Document:
    if setting.option != "--set":
        return Document([setting.shown], data=setting.value, values={(): Location(1, 1, 1)}, complete=True)
    return reader.read(setting.value.encode(errors="surrogatepass"))


def _is_known(document: Document, path: Path, here: Location) -> bool:
    """Return whether a field begins with a key of job files; otherwise, add a problem."""
    if path[0] in JOB_FILE.keys:
        return True
    jobs = _get(document, ("jobs",))
    label = there_are(list(jobs) if isinstance(jobs, dict) else [], "job")
    close = nearest(str(path[0]), [*JOB_FILE.keys, *(jobs if isinstance(jobs, dict) else ())])
    message = f"a job file has no key {quoted(str(path[0]))}, and this one no job of that name"
    advice = f"did you mean {close}?" if close else None
    document.problems.append(document.problem("unknown-key", message, here, path, label=label, advice=advice))
    return False


def _moved(at: Location, line: int, start: int) -> Location:
    return Location(line, at.column + start, at.length)


def _make_parents(document: Document, path: Path, here: Location) -> Any:
    """Return the mapping or list that holds a field, which may be new; None with a problem if there can't be one."""
    if document.data is None:
        document.data = {}
    at: Any = document.data
    for length, step in enumerate(path):
        place = path[:length]
        if length == 2 and place[0] == "jobs" and type(at) is int:  # a job may be written as its number of tasks
            at = document.data["jobs"][place[1]] = {"tasks": at}  # type: ignore[index]
            document.keys[(*place, "tasks")] = document.values[(*place, "tasks")] = document.values[place]
        kind, fits = (dict, "a mapping") if isinstance(step, str) else (list, f"a list of {step} entries or more")
        if not isinstance(at, kind) or (isinstance(step, int) and step > len(at)):
            label = f"{quoted(dotted(place)) if place else 'the job file'} is not {fits}"
            message = f"{quoted(dotted(path))} can't be set"
            document.problems.append(document.problem("wrong-type", message, here, path, label=label))
            return None
        if length == len(path) - 1:
            return at
        following = path[: length + 1]
        if step not in (range(len(at)) if isinstance(at, list) else at):
            _set(at, step, [] if isinstance(path[length + 1], int) else {})
            document.keys[following] = document.values[following] = here
        at = at[step]  # type: ignore[index]
    return None


def _set(parent: Any, step: str | int, value: object) -> None:
    if isinstance(parent, list) and step == len(parent):
        parent.append(value)
    else:
        parent[step] = value


def _forget(document: Document, path: Path) -> None:
    """Remove all that is known of a value and what is below it."""
    for known in (document.keys, document.values):
        for place in [place for place in known if place[: len(path)] == path]:
            del known[place]
    document.broken = {place for place in document.broken if place[: len(path)] != path}


def _get(document: Document, path: Path) -> Any:
    value: Any = document.data
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return None
        value = value[step]
    return value
