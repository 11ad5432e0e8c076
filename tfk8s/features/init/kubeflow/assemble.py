"""The job file of replicas that were read from a TFJob."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tfk8s.core import naming, spec
from tfk8s.core.job_file import mappings
from tfk8s.errors import InvalidInput, JobFileError
from tfk8s.features.init.kubeflow.pod import Replica
from tfk8s.jobfile import loader
from tfk8s.jobfile.text import BAD_CHARACTER

Object = dict[str, Any]

_SHARED = ("image", "env", "labels", "annotations", "volumes", "pod")  # keys that jobs can have in common
_ORDER = (
    "apiVersion", "name", "namespace", "image", "image_pull_secrets", "queue", "security", "env", "labels",
    "annotations", "volumes", "pod", "jobs", "run", "ttl",
)  # fmt: skip


def job_file(name: str, keys: Object, replicas: Sequence[Replica], notes: list[str]) -> Object:
    """Return the job file as data.

    Args:
        name: the TFJob's name.
        keys: the keys of the job file itself.
        replicas: the jobs.
        notes: gets what is different.

    Raises:
        InvalidInput: no job file can say this.
    """
    data = {
        "apiVersion": spec.API_VERSION, "name": _cluster_name(name, replicas, notes), **keys,
        **_common(replicas, notes), "jobs": {replica.job: replica.keys for replica in replicas},
    }  # fmt: skip
    _share(data)
    try:
        loader.loads(as_json(data), "cluster.yaml")
    except JobFileError as error:
        problem = error.problems[0]
        message = f"no job file can have {problem.path}: {problem.message}"
        raise InvalidInput(message, help=problem.help or problem.label or None) from error
    return {key: data[key] for key in _ORDER if key in data}


def as_json(data: object) -> str:
    """Return data as JSON that is also YAML."""
    text = json.dumps(data, ensure_ascii=False)
    return re.sub(BAD_CHARACTER, lambda match: f"\\u{ord(match.group()):04x}", text)


def _cluster_name(name: str, replicas: Sequence[Replica], notes: list[str]) -> str:
    limit = naming.MAX_STATEFUL_SET - 1 - max(len(replica.job) for replica in replicas)
    short = name[:limit].rstrip("-")
    if short != name:
        notes.append(f'the name is "{short}": with the names of jobs, at most {naming.MAX_STATEFUL_SET} characters fit')
    return short


def _common(replicas: Sequence[Replica], notes: list[str]) -> Object:
    """Return the keys that a job file has for all jobs: pull secrets and security."""
    secrets = list(dict.fromkeys(name for replica in replicas for name in replica.pull_secrets))
    security: Object = {}
    defaults = mappings.Security()
    for key in ("user", "group", "service_account"):
        found = list(dict.fromkeys(replica.security.get(key) for replica in replicas))
        value = next((value for value in found if value is not None), None)
        if value == 0:
            notes.append(f"the {key} of the pods is {getattr(defaults, key)}, because 0 is root")
        elif value is not None and value != getattr(defaults, key):
            security[key] = value
            if len(found) > 1:
                notes.append(f"the pods of all jobs have one {key}: {value}")
    return {**({"image_pull_secrets": secrets} if secrets else {}), **({"security": security} if security else {})}


def _share(data: Object) -> None:
    """Move what all jobs have in common to the top."""
    jobs: list[Object] = list(data["jobs"].values())
    first = jobs[0]
    for key in _SHARED:
        if key in first and all(job.get(key) == first[key] for job in jobs) and (len(jobs) > 1 or key == "image"):
            data[key] = first[key]
            for job in jobs:
                del job[key]
