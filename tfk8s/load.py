"""YAML → `spec.JobFile`, or all that is wrong with it, each problem with its place.

Three stages: `yamlfile` reads hostile text, `schema` says what may stand in it (`problems` puts pydantic's findings
into words), `checks` compares what must fit together. The last two run whenever the text could be read whole, so that
all problems are said at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tfk8s import spec
from tfk8s.errors import JobFileError, Problem
from tfk8s.jobfile import checks, problems, yamlfile
from tfk8s.jobfile import schema as models
from tfk8s.jobfile.document import Document
from tfk8s.jobfile.json_schema import schema

__all__ = ["load", "loads", "schema"]


def load(path: str | Path) -> spec.JobFile:
    """Read a job file; "-" is standard input.

    Raises:
        JobFileError: it can't be read, or it has problems.
    """
    if str(path) == "-":
        return loads(sys.stdin.buffer.read(yamlfile.MAX_BYTES + 1), "standard input")
    return loads(_read(Path(path)), str(path))


def loads(text: str | bytes, file: str) -> spec.JobFile:
    """Read a job file's text; `file` is its name in messages.

    Raises:
        JobFileError: it has problems.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    document = yamlfile.read(data)
    found = document.problems
    model = None
    if document.complete:
        model, more = _validate(document)
        found = [*found, *more]
    if found or model is None:
        raise JobFileError(file, _in_order(found))
    return _job_file(model)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(yamlfile.MAX_BYTES + 1)
    except FileNotFoundError as error:
        problem = Problem("no-such-file", "there is no such file", help="write one with: tfk8s init")
        raise JobFileError(str(path), [problem]) from error
    except IsADirectoryError as error:
        raise JobFileError(str(path), [Problem("folder", "this is a folder, not a job file")]) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise JobFileError(str(path), [Problem("unreadable", f"the file can't be read: {reason}")]) from error


def _validate(document: Document) -> tuple[models.JobFile | None, list[Problem]]:
    """Return the model of a document that could be read, and what is wrong with it."""
    model, found = None, []
    try:
        with _without_plugins():
            model = models.JobFile.model_validate(document.data)
    except ValidationError as error:
        found = problems.translate(document, error.errors(include_url=False))
    bad = {path for path, _ in found}
    return model, [*(problem for _, problem in found), *checks.check(document, bad)]


@contextlib.contextmanager
def _without_plugins() -> Iterator[None]:
    """Keep pydantic from looking for its plugins in all installed packages: that takes as long as the rest."""
    name = "PYDANTIC_DISABLE_PLUGINS"
    before = os.environ.get(name)
    os.environ[name] = "__all__"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _in_order(found: Iterable[Problem]) -> list[Problem]:
    ordered = sorted(found, key=lambda problem: (problem.line, problem.column))
    more = len(ordered) - yamlfile.MAX_PROBLEMS
    if more > 0:
        message = f"the job file has more than {yamlfile.MAX_PROBLEMS} problems; the first of them are above"
        ordered[yamlfile.MAX_PROBLEMS :] = [Problem("too-many-problems", message)]
    return ordered


def _job_file(model: models.JobFile) -> spec.JobFile:
    names = [*model.jobs]
    master = model.master or spec.default_master(names)
    assert master is not None, "checks.master refuses this"
    ordered = sorted(names, key=lambda name: (name != master, name))
    return spec.JobFile(
        name=model.name,
        jobs=tuple(_job(name, model.jobs[name]) for name in ordered),
        master=master,
        image=model.image,
        namespace=model.namespace,
        port=model.port,
        env=model.env,
        volumes=_volumes(model.volumes),
        queue=model.queue,
        network=_network(model.network) if model.network else spec.Network(),
        security=spec.Security(**dict(model.security)) if model.security else spec.Security(),
        ttl=model.ttl,
    )


def _job(name: str, form: models.Job | int | list[str]) -> spec.Job:
    if isinstance(form, int):
        return spec.Job(name=name, tasks=form)
    if isinstance(form, list):
        return spec.Job(name=name, tasks=len(form), addresses=tuple(form))
    values: dict[str, Any] = dict(form)
    values["tolerations"] = tuple(
        toleration.model_dump(by_alias=True, exclude_unset=True) for toleration in form.tolerations
    )
    return spec.Job(name=name, **values | {"volumes": _volumes(form.volumes), "preload": tuple(form.preload)})


def _volumes(volumes: Iterable[models.Volume]) -> tuple[spec.Volume, ...]:
    return tuple(spec.Volume(**dict(volume)) for volume in volumes)


def _network(network: models.Network) -> spec.Network:
    return spec.Network(
        allow_from=tuple(spec.Peer(**dict(source)) for source in network.allow_from),
        allow_to=tuple(spec.Peer(**dict(goal) | {"ports": tuple(goal.ports)}) for goal in network.allow_to),
    )
