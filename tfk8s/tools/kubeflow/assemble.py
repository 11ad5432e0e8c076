"""The job file of jobs that were read from an object: valid, as short as possible, with the rest in the key `pod`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tfk8s.core import naming, spec
from tfk8s.errors import InvalidInput, JobFileError, Problem
from tfk8s.jobfile import loader, reader
from tfk8s.jobfile.document import Path, dotted
from tfk8s.jobfile.text import BAD_CHARACTER
from tfk8s.render import overlay, pods, tfjob
from tfk8s.tools.kubeflow import pod
from tfk8s.tools.kubeflow.draft import Draft, Notes

Object = dict[str, Any]

_SHARED = ("image", "env", "labels", "annotations", "volumes", "pod")  # keys that jobs can have in common
_ORDER = (
    "apiVersion", "name", "namespace", "image", "image_pull_secrets", "queue", "security", "env", "labels",
    "annotations", "volumes", "pod", "jobs", "run", "ttl",
)  # fmt: skip
_LISTS = ("volumes", "tolerations", "env", "volumeMounts", "image_pull_secrets", "hostAliases", "ports")
_MAPPINGS = ("env", "labels", "annotations", "node_selector")
_SINGLE = ("priority_class", "queue", "gpu_resource", "accelerator", "service_account", "user", "group")
_SINGULAR = {
    "volumes": "volume", "volumeMounts": "mount", "env": "variable", "tolerations": "toleration",
    "containers": "container", "initContainers": "init container",
}  # fmt: skip
_MAX_ROUNDS = 20  # each removes at least one part


def job_file(name: str, keys: Object, drafts: Sequence[Draft], notes: Notes) -> Object:
    """Return the job file as data.

    Args:
        name: the object's name.
        keys: the keys of the job file itself.
        drafts: the jobs.
        notes: what gets lost.

    Raises:
        InvalidInput: no job file can say this.
    """
    cluster = _cluster_name(name, drafts, notes)
    for draft in drafts:
        pod.tidy(draft, tfjob.selector(name, draft.name))
    data = {
        "apiVersion": spec.API_VERSION, "name": cluster, **keys, **_common(drafts, notes),
        "jobs": {draft.name: draft.keys for draft in drafts},
    }  # fmt: skip
    data = _valid(data, notes)
    loaded = loader.loads(as_json(data), cluster)
    for draft in drafts:
        labels = tfjob.selector(name, draft.name)
        base = pods.template(loaded, loaded.job(draft.name), labels)["spec"]
        rest = overlay.difference(base, draft.spec)
        if rest:
            data["jobs"][draft.name]["pod"] = rest
    data = _valid(data, notes)
    for job in data["jobs"].values():
        _remove_dangling_mounts(job)
    data = _without_empty(_valid(data, notes))
    _share(data)
    return {key: data[key] for key in _ORDER if key in data}


def as_json(data: object) -> str:
    """Return data as JSON that is also YAML."""
    text = json.dumps(data, ensure_ascii=False)
    return re.sub(BAD_CHARACTER, lambda match: f"\\u{ord(match.group()):04x}", text)


def _cluster_name(name: str, drafts: Sequence[Draft], notes: Notes) -> str:
    limit = naming.MAX_STATEFUL_SET - 1 - max(len(draft.name) for draft in drafts)
    short = name[:limit].rstrip("-")
    if short != name:
        notes.add(f'the name is "{short}": with the names of jobs, at most {naming.MAX_STATEFUL_SET} characters fit')
    return short


def _common(drafts: Sequence[Draft], notes: Notes) -> Object:
    """Return the keys that a job file has for all jobs: pull secrets and security."""
    secrets = list(dict.fromkeys(name for draft in drafts for name in draft.pull_secrets))
    security: Object = {}
    defaults = spec.Security()
    for key in ("user", "group", "service_account"):
        found = list(dict.fromkeys(draft.security.get(key) for draft in drafts))
        value = next((value for value in found if value is not None), None)
        if value == 0:
            notes.add(f"the {key} of the pods is {getattr(defaults, key)}, because 0 is root")
        elif value is not None and value != getattr(defaults, key):
            security[key] = value
            if len(found) > 1:
                notes.add(f"the pods of all jobs have one {key}: {value}")
    return {**({"image_pull_secrets": secrets} if secrets else {}), **({"security": security} if security else {})}


def _valid(data: Object, notes: Notes) -> Object:
    """Return a job file without the parts that are not valid, each of which gets a note.

    Raises:
        InvalidInput: a part that can't be left out is not valid.
    """
    for _ in range(_MAX_ROUNDS):
        text = as_json(data)
        try:
            loader.loads(text, data["name"])
        except JobFileError as error:
            document = reader.read(text.encode())
            paths = {dotted(path): path for path in (*document.values, *document.keys)}
            removed = {
                _removable(paths.get(problem.path) or paths[problem.path.rpartition(".")[0]], problem): problem
                for problem in error.problems
            }
            for path in sorted(removed, key=_order, reverse=True):  # the last first, so that indices stay
                _remove(data, path, removed[path], notes)
        else:
            return data
    raise InvalidInput(f'"{data["name"]}" has too many settings that no job file can have')


def _order(path: Path) -> tuple[str, ...]:
    """Return the key by which paths are sorted, with indices as numbers."""
    return tuple(f"{step:06}" if isinstance(step, int) else step for step in path)


def _removable(path: Path, problem: Problem) -> Path:
    """Return the part of a job file to leave out because of a problem at a path."""
    for length in range(len(path), 1, -1):
        key, above = path[length - 1], path[length - 2]
        is_job = path[0] != "jobs" or length > 3
        if isinstance(key, int) and above in _LISTS:
            return path[:length]
        if is_job and (above in _MAPPINGS or key in _SINGLE) and "pod" not in path[: length - 1]:
            return path[:length]
    if "pod" in path and path.index("pod") < len(path) - 1:
        in_container = len(path) > 2 and path[-1] == "name" and isinstance(path[-2], int)
        return path[:-1] if in_container else path
    if path and path[-1] in _SINGLE:
        return path
    raise InvalidInput(f"no job file can say this: {problem.message}", help=problem.help or problem.label or None)


def _remove(data: Object, path: Path, problem: Problem, notes: Notes) -> None:
    parent: Any = data
    for step in path[:-1]:
        parent = parent[step]
    part = parent[path[-1]]
    if isinstance(part, dict) and isinstance(path[-1], int):
        names = [str(part[key]) for key in ("name", "mountPath", "path", "key") if key in part]
        what = f'{_SINGULAR.get(str(path[-2]), str(path[-2]))} "{names[0] if names else path[-1]}"'
    elif path[-2:-1] == ("env",):
        what = f'variable "{path[-1]}"'
    else:
        above = str(path[-2]) if len(path) > 1 else ""
        what = f'{above.removesuffix("s")} "{path[-1]}"' if above in _MAPPINGS else str(path[-1])
    where = f"{path[1]}: " if path[0] == "jobs" else ""
    reason = problem.label if problem.code in ("reserved-key", "reserved-name", "bad-value") else problem.message
    notes.add(f"{where}{what} is left out: {reason}")
    del parent[path[-1]]


def _remove_dangling_mounts(job: Object) -> None:
    """Remove the mounts of volumes that were left out."""
    part = job.get("pod", {})
    names = [volume["name"] for volume in part.get("volumes", ())]
    for container in (*part.get("containers", ()), *part.get("initContainers", ())):
        mounts = [mount for mount in container.get("volumeMounts", ()) if mount.get("name") in names]
        if "volumeMounts" in container:
            container["volumeMounts"] = mounts


def _without_empty(data: Object) -> Object:
    """Return a job file without empty mappings and lists of the key `pod`, and of jobs."""
    for job in data["jobs"].values():
        if "pod" in job:
            containers = [_trimmed(one) for one in job["pod"].get("containers", ())]
            others = [one for one in containers if one != {"name": "server"}]
            job["pod"] = _trimmed({**job["pod"], "containers": others})
    return {**data, "jobs": {name: _trimmed(job) for name, job in data["jobs"].items()}}


def _trimmed(mapping: Object) -> Object:
    """Return a mapping without the keys whose values are empty."""
    return {key: value for key, value in mapping.items() if value not in ({}, [])}


def _share(data: Object) -> None:
    """Move what all jobs have in common to the top."""
    jobs: list[Object] = list(data["jobs"].values())
    first = jobs[0]
    for key in _SHARED:
        if key in first and all(job.get(key) == first[key] for job in jobs) and (len(jobs) > 1 or key == "image"):
            data[key] = first[key]
            for job in jobs:
                del job[key]
