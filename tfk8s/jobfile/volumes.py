"""The entries of `volumes` in a job file, and the rules between them: paths differ, and claims agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfk8s.core.naming import SHM_FOLDER
from tfk8s.core.storage import volumes
from tfk8s.errors import Problem, quoted
from tfk8s.jobfile.declared import struct
from tfk8s.jobfile.document import Path
from tfk8s.jobfile.valid_values import ValidValues
from tfk8s.jobfile.values import Invalid, normal_path

# Keys that have a meaning with another key only.
_NEEDED = {"create": "claim", "storage_class": "create", "access": "create", "local_mount": "folder"}
_OF_CLAIMS = ("create", "storage_class", "access")


def _has_source(values: dict[str, Any]) -> None:
    given = [source for source in volumes.SOURCES if source in values]
    expected = f"expected exactly one of {', '.join(volumes.SOURCES[:-1])} and {volumes.SOURCES[-1]}"
    if len(given) > 1:
        raise Invalid("bad-volume", f"a volume can't have {' and '.join(given)} at once", expected)
    if not given and "folder" not in values:
        raise Invalid("bad-volume", "this volume has no source", f"{expected}; or folder, for clusters on this machine")
    for key, needed in _NEEDED.items():
        if key in values and needed not in values:
            raise Invalid("bad-volume", f"{key} has no effect without {needed}", f"expected {needed} beside {key}")


VOLUME = struct(
    volumes.Volume,
    rule=_has_source,
    rule_schema={
        "oneOf": [
            *({"required": [source]} for source in volumes.SOURCES),
            {"required": ["folder"], "not": {"anyOf": [{"required": [source]} for source in volumes.SOURCES]}},
        ],
        "dependentRequired": {key: [needed] for key, needed in _NEEDED.items()},
    },
)


def duplicate_paths(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each pair of volumes that a task mounts at the same path."""
    shared: dict[str, Path] = {}
    yield from _duplicate_paths(values, ("volumes",), shared)
    for job in values.jobs:
        if isinstance(values.get("jobs", job), dict):
            yield from _duplicate_paths(values, ("jobs", job, "volumes"), dict(shared))
            yield from _shm_and_volume(values, job, shared)


def _shm_and_volume(values: ValidValues, job: str, shared: Mapping[str, Path]) -> Iterator[Problem]:
    """Yield a problem if a job has both `shm` and a volume at the same path."""
    paths = {normal_path(path): (*entry, "path") for entry, path in _mount_paths(values, ("jobs", job, "volumes"))}
    volume = paths.get(SHM_FOLDER) or shared.get(SHM_FOLDER)
    if volume and values.get("jobs", job, "shm") is not None:
        label = f"a volume is mounted there {values.document.place(values.document.values[volume])}"
        message = f"shm is mounted at {SHM_FOLDER}, and so is a volume"
        yield values.problem("duplicate-path", message, ("jobs", job, "shm"), label=label)


def _duplicate_paths(values: ValidValues, volumes: Path, seen: dict[str, Path]) -> Iterator[Problem]:
    for entry, path in _mount_paths(values, volumes):
        key_path = (*entry, "path")
        if seen.setdefault(normal_path(path), key_path) != key_path:
            place = values.document.place(values.document.values[seen[normal_path(path)]])
            message = f"two volumes are mounted at {quoted(path)}"
            yield values.problem("duplicate-path", message, key_path, label=f"the other volume is {place}")


def _mount_paths(values: ValidValues, volumes: Path) -> Iterator[tuple[Path, str]]:
    """Yield the entries of a list of volumes, each with its path."""
    for entry, _ in values.entries(*volumes):
        if isinstance(path := values.get(*entry, "path"), str):
            yield entry, path


def differing_claims(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each volume that would make a claim otherwise than a volume before it."""
    seen: dict[str, Path] = {}
    for entry in _entries(values):
        claim = values.get(*entry, "claim")
        if not isinstance(claim, str) or values.get(*entry, "create") is None:
            continue
        first = seen.setdefault(claim, entry)
        for key in _OF_CLAIMS:
            wanted, given = values.get(*first, key), values.get(*entry, key)
            if wanted != given:
                path = (*entry, key if given is not None else "create")
                place = values.document.place(values.document.values[(*first, "create")])
                message = f"claim {quoted(claim)} is made twice, with another {key}"
                yield values.problem("claims-differ", message, path, label=f"the first is {place}")


def one_pod_claims(values: ValidValues) -> Iterator[Problem]:
    """Yield a problem for each claim that only one pod may mount, and that several tasks would mount."""
    entries = list(_entries(values))
    one_pod = {values.get(*entry, "claim"): entry for entry in reversed(entries) if _is_for_one_pod(values, entry)}
    for claim, entry in one_pod.items():
        tasks = sum(_tasks(values, job, claim) for job in values.jobs)
        if isinstance(claim, str) and tasks > 1:
            message = f"{tasks} tasks would mount claim {quoted(claim)}, which is for one pod"
            advice = f"write {volumes.MANY_NODES}"
            yield values.problem("one-pod-claim", message, (*entry, "access"), advice=advice)


def _is_for_one_pod(values: ValidValues, entry: Path) -> bool:
    return bool(values.get(*entry, "access") == volumes.ONE_POD)


def _entries(values: ValidValues) -> Iterator[Path]:
    """Yield the paths of all entries of `volumes`: the cluster's, then the jobs'."""
    yield from (entry for entry, _ in values.entries("volumes"))
    for job in values.jobs:
        if isinstance(values.get("jobs", job), dict):
            yield from (entry for entry, _ in values.entries("jobs", job, "volumes"))


def _tasks(values: ValidValues, job: str, claim: object) -> int:
    """Return the number of a job's tasks that mount a claim."""
    own = (("jobs", job, "volumes"),) if isinstance(values.get("jobs", job), dict) else ()
    entries = (entry for path in (("volumes",), *own) for entry, _ in values.entries(*path))
    return (values.tasks(job) or 0) if any(values.get(*entry, "claim") == claim for entry in entries) else 0
