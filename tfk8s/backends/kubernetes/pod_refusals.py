"""The API server's refusals: of a namespace that is being deleted, and of what users write below `pod`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError, NamespaceTerminating
from tfk8s.backends.kubernetes.api_server.field_errors import FieldError
from tfk8s.core import naming
from tfk8s.core.naming import SERVER_CONTAINER
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests
from tfk8s.render.pods import Object

_POD = "spec.template.spec"
_STEP = re.compile(r"([A-Za-z0-9/_-]+)(\[[^\]]*\])?")
_UNKNOWN = "field not declared in schema"


def require_lasting(client: Client, namespace: str, name: str) -> None:
    """Check that a namespace is not being deleted, by a dry run that creates an object: few may read namespaces.

    In a namespace that is being deleted, objects that exist still look as the job file has them for a while.

    Raises:
        NamespaceTerminating: the namespace is being deleted.
    """
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-new"}}
    try:
        client.apply(paths.path(item, namespace), item, dry_run=True)
    except ApiError as error:  # others are for the cluster's objects to tell
        if isinstance(error, NamespaceTerminating):
            raise


def in_words_of(job_file: JobFile, error: ApiError, objects: Sequence[Object]) -> Exception:
    """Return the error about the keys of the job file that the API server refuses; else the error itself.

    Args:
        error: the refusal of one of the objects.
        objects: the cluster's objects, as they were sent.
    """
    specs = {
        item["metadata"]["name"]: item["spec"]["template"]["spec"] for item in objects if manifests.has_tasks(item)
    }
    name, fields = error.invalid or ("", ())
    if FieldError("spec.successPolicy", _UNKNOWN) in fields:
        return InvalidInput(
            f"run.success: {job_file.run.success}: on Kubernetes before 1.31, one task can't be the success of a run",
            help="name a job in run.success; nothing was changed",
        )
    job = next((job for job in job_file.jobs if naming.stateful_set(job_file.name, job.name) == name), None)
    problems = [_located(job_file, job, specs[name], field) for field in fields] if job else []
    if not problems or not all(problems):
        return error
    return InvalidInput(
        f"the API server refuses {'; '.join(problems)}",
        help="`kubectl explain pod.spec` describes the fields; nothing was changed",
    )


def _located(job_file: JobFile, job: Job, spec: Object, field: FieldError) -> str:
    """Return the problem of a field with the key in the job file; "" for a field that no `pod` sets."""
    problem = "there is no such field" if field.problem == _UNKNOWN else field.problem
    parts = {f"jobs.{job.name}.pod": job.pod, "pod": job_file.pod}
    if not field.path:
        key = next((key for key, part in parts.items() if part), "")
        return key and f"{key}: {problem}"
    if not field.path.startswith(f"{_POD}."):
        return ""
    path = _with_names(spec, field.path.removeprefix(f"{_POD}."))
    key = next((key for key, part in parts.items() if _sets(part, path)), "")
    return key and f"{key}.{'.'.join(name + (f'[{entry}]' if entry else '') for name, entry in path)}: {problem}"


def _with_names(spec: Object, path: str) -> list[tuple[str, str]]:
    """Return the keys of a path, each with the name, or else the index, of the entry of a list; "" for no entry."""
    value: Any = spec
    steps = []
    for name, index in _STEP.findall(path):
        value = value.get(name) if isinstance(value, dict) else None
        entry = index.strip("[]").rpartition("=")[2].strip('"')
        if entry and isinstance(value, list):
            value = next((item for number, item in enumerate(value) if _is_entry(item, number, entry)), None)
            entry = value.get("name", entry) if isinstance(value, dict) else entry
        steps.append((name, entry))
    return steps


def _is_entry(item: Any, number: int, entry: str) -> bool:
    """Return whether an entry of a list is the one with an index, as of a list, or with a key, as of a map."""
    return entry == str(number) or (isinstance(item, dict) and entry in map(str, item.values()))


def _sets(part: Mapping[str, Any], path: Sequence[tuple[str, str]]) -> bool:
    """Return whether a part of a pod's spec sets the field at a path, or the entry that lacks the field."""
    (name, entry), *rest = path
    if not entry or not isinstance(part.get(name), list):
        return name in part
    same = [item for item in part[name] if not isinstance(item, dict) or item.get("name", entry) == entry]
    return any(entry != SERVER_CONTAINER or (rest and rest[0][0] in item) for item in same)
