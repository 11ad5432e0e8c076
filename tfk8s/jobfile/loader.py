"""Loading of job files: YAML text becomes a `spec.JobFile`, or a list of all problems with their locations.

There are three stages: `reader` reads hostile text, `validation` checks each value against `schema`, and
`cross_checks` compares values with each other. The last two stages run whenever the whole text could be read, so that
all problems are reported at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfk8s import spans
from tfk8s.core import roles, spec
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import JobFileError, Problem
from tfk8s.jobfile import cross_checks, overrides, reader
from tfk8s.jobfile.document import MAX_PROBLEMS, Document
from tfk8s.jobfile.overrides import Setting
from tfk8s.jobfile.schema import JOB_FILE
from tfk8s.jobfile.text import MAX_BYTES
from tfk8s.jobfile.validation import Validator


def load(path: str | Path, settings: Sequence[Setting] = ()) -> spec.JobFile:
    """Load a job file.

    Args:
        path: the file; "-" is standard input.
        settings: values of the command line, which replace the file's.

    Raises:
        JobFileError: the file can't be read, or it has problems.
    """
    with spans.part("read job file"):
        if str(path) == "-":
            return loads(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input", settings=settings)
        return loads(_read(Path(path)), str(path), str(Path(path).resolve().parent), settings)


def loads(text: str | bytes, file: str, folder: str = "", settings: Sequence[Setting] = ()) -> spec.JobFile:
    """Load the text of a job file.

    Args:
        folder: the absolute folder of the programs; "" is the current folder.
        settings: values of the command line, which replace the text's.

    Raises:
        JobFileError: the text has problems.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    document = reader.read(data)
    if document.complete:
        overrides.apply(document, settings)
    values, problems = _validate(document) if document.complete else ({}, [])
    problems = [*document.problems, *problems]
    if problems:
        raise JobFileError(file, _in_order(problems))
    return _job_file(values, folder or str(Path.cwd()))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        problem = Problem("no-such-file", "the file does not exist", help="create a job file with: tfk8s init")
        raise JobFileError(str(path), [problem]) from error
    except IsADirectoryError as error:
        raise JobFileError(str(path), [Problem("folder", "this is a folder, not a job file")]) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise JobFileError(str(path), [Problem("unreadable", f"the file can't be read: {reason}")]) from error


def _validate(document: Document) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values in a document, and their problems."""
    validator = Validator(document)
    values = validator.read(JOB_FILE, document.data, ())
    return values, [*validator.problems, *cross_checks.check(document, validator.bad)]


def _in_order(problems: Iterable[Problem]) -> list[Problem]:
    ordered = sorted(problems, key=lambda problem: (problem.option, problem.line, problem.column))
    if len(ordered) > MAX_PROBLEMS:
        message = f"the job file has more than {MAX_PROBLEMS} problems; the first {MAX_PROBLEMS} are above"
        ordered[MAX_PROBLEMS:] = [Problem("too-many-problems", message)]
    return ordered


def _job_file(values: dict[str, Any], folder: str) -> spec.JobFile:
    jobs = [spec.Job(name=name, **form) for name, form in values["jobs"].items()]
    jobs = [_with_folder(job, folder) for job in jobs]
    servers = [job.name for job in jobs if job.has_server]
    candidates = [job.name for job in jobs if job.takes_part]
    master = values.get("master") or roles.default_master(servers) or roles.default_master(candidates)
    jobs.sort(key=lambda job: (job.name != master, job.name))
    del values["apiVersion"]
    volumes = _absolute(values.get("volumes", ()), folder)
    return spec.JobFile(**values | {"jobs": tuple(jobs), "master": master, "volumes": volumes})


def _with_folder(job: spec.Job, folder: str) -> spec.Job:
    """Return a job whose program, modules and volumes are relative to a folder."""
    program = job.program and replace(job.program, folder=folder)
    volumes = _absolute(job.volumes, folder)
    return replace(job, program=program, volumes=volumes, folder=folder if job.preload else "")


def _absolute(volumes: Iterable[Volume], folder: str) -> tuple[Volume, ...]:
    """Return volumes with absolute folders."""
    return tuple(
        replace(volume, folder=os.path.abspath(Path(folder, os.path.expanduser(volume.folder))))  # noqa: PTH100, PTH111
        if volume.folder
        else volume
        for volume in volumes
    )
