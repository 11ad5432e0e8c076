"""YAML → `spec.JobFile`, or all that is wrong with it, each problem with its place.

Three stages: `yamlfile` reads hostile text, `schema` says what may stand in it (`problems` collects what may not),
`checks` compares what must fit together. The last two run whenever the text could be read whole, so that all problems
are said at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfk8s.core import spec
from tfk8s.errors import JobFileError, Problem
from tfk8s.jobfile import cross_checks, reader
from tfk8s.jobfile.document import MAX_PROBLEMS, Document
from tfk8s.jobfile.schema import JOB_FILE
from tfk8s.jobfile.validation import Validator

__all__ = ["load", "loads", "schema"]


def load(path: str | Path) -> spec.JobFile:
    """Read a job file; "-" is standard input.

    Raises:
        JobFileError: it can't be read, or it has problems.
    """
    if str(path) == "-":
        return loads(sys.stdin.buffer.read(reader.MAX_BYTES + 1), "standard input")
    return loads(_read(Path(path)), str(path))


def loads(text: str | bytes, file: str) -> spec.JobFile:
    """Read a job file's text; `file` is its name in messages.

    Raises:
        JobFileError: it has problems.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    document = reader.read(data)
    values, found = _validate(document) if document.complete else ({}, [])
    found = [*document.problems, *found]
    if found:
        raise JobFileError(file, _in_order(found))
    return _job_file(values)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of job files."""
    from tfk8s.jobfile import schema as schema_module

    return schema_module.json_schema()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(reader.MAX_BYTES + 1)
    except FileNotFoundError as error:
        problem = Problem("no-such-file", "there is no such file", help="write one with: tfk8s init")
        raise JobFileError(str(path), [problem]) from error
    except IsADirectoryError as error:
        raise JobFileError(str(path), [Problem("folder", "this is a folder, not a job file")]) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise JobFileError(str(path), [Problem("unreadable", f"the file can't be read: {reason}")]) from error


def _validate(document: Document) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values in a document that could be read, and what is wrong with them."""
    report = Validator(document)
    values = report.read(JOB_FILE, document.data, ())
    return values, [*report.problems, *cross_checks.check(document, report.bad)]


def _in_order(found: Iterable[Problem]) -> list[Problem]:
    ordered = sorted(found, key=lambda problem: (problem.line, problem.column))
    more = len(ordered) - MAX_PROBLEMS
    if more > 0:
        message = f"the job file has more than {MAX_PROBLEMS} problems; the first of them are above"
        ordered[MAX_PROBLEMS:] = [Problem("too-many-problems", message)]
    return ordered


def _job_file(values: dict[str, Any]) -> spec.JobFile:
    jobs = [spec.Job(name=name, **form) for name, form in values["jobs"].items()]
    master = values.get("master") or spec.default_master([job.name for job in jobs])
    jobs.sort(key=lambda job: (job.name != master, job.name))
    del values["apiVersion"]
    return spec.JobFile(**values | {"jobs": tuple(jobs), "master": master})
