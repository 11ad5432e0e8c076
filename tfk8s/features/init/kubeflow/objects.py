"""The objects in a file, as `kubectl apply` reads it: several documents, and lists of objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfk8s.core import spec
from tfk8s.errors import InvalidInput, JobFileError, quoted
from tfk8s.features.init.kubeflow import tfjob
from tfk8s.features.init.kubeflow.located_fields import Fields
from tfk8s.jobfile import reader, types
from tfk8s.jobfile.document import Document, Path
from tfk8s.render import kueue

# The parts of an object's metadata that the API server or kubectl writes.
_WRITTEN = (
    "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation", "managedFields",
    "ownerReferences", "resourceVersion", "selfLink", "uid",
)  # fmt: skip
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def choose(data: bytes, file: str, notes: list[str]) -> Fields:
    """Return the one TFJob in a file.

    Args:
        data: the file.
        notes: gets a sentence about each other object.

    Raises:
        JobFileError: the file can't be read.
        InvalidInput: the file has no TFJob, or several.
    """
    jobs: list[Fields] = []
    others: list[str] = []
    for item in _objects(data, file):
        kind, version = item.text("kind"), item.text("apiVersion")
        if kind == tfjob.KIND:
            if version not in tfjob.VERSIONS:
                message = f"{quoted(version)} is no known version of TFJob"
                raise item.error("apiVersion", message, f"expected {', '.join(tfjob.VERSIONS)}")
            jobs.append(item)
        elif version == spec.API_VERSION:
            raise InvalidInput(f'"{file}" is a job file already', help=f"tfk8s validate {file}")
        else:
            others.append(f"{kind or 'object'} {quoted(item.fields('metadata').text('name'))}")
    if not jobs:
        have = f": it has {', '.join(others[:5])}" if others else ""
        raise InvalidInput(f'"{file}" has no TFJob{have}', help="name a file with a TFJob")
    if len(jobs) > 1:
        raise jobs[1].error("", f"the file has {len(jobs)} TFJobs, and a job file is about one", "the second TFJob")
    notes += [f"{other} in the same file stays an object of its own" for other in others]
    return jobs[0]


def metadata_keys(metadata: Fields, notes: list[str]) -> dict[str, Any]:
    """Return the keys of a job file from an object's metadata; `notes` gets what is left out."""
    keys: dict[str, Any] = {}
    if (namespace := metadata.value("namespace", types.LABEL)) is not None:
        keys["namespace"] = namespace
    labels, annotations = metadata.fields("labels"), metadata.fields("annotations")
    if queue := labels.text(kueue.QUEUE):
        keys["queue"] = queue
    annotations.drop(_LAST_APPLIED)
    for kind, entries in (("label", labels), ("annotation", annotations)):
        for key in entries.left():
            notes.append(f'the {kind} "{key}" of the object itself: {kind}s of a job file are those of pods')
    metadata.drop(*_WRITTEN, "generateName")
    for key in metadata.left():
        notes.append(f"metadata.{key} has no counterpart")
    return keys


def _objects(data: bytes, file: str) -> Iterator[Fields]:
    """Yield the objects in a file.

    Raises:
        JobFileError: the file can't be read.
    """
    documents = reader.read_all(data, "a manifest")
    problems = [problem for document in documents for problem in document.problems]
    if problems:
        raise JobFileError(file, problems[:1])
    for document in documents:
        yield from _items(file, document, (), document.data)


def _items(file: str, document: Document, path: Path, data: object) -> Iterator[Fields]:
    if not isinstance(data, dict):
        problem = document.problem("wrong-type", "this is no object of Kubernetes", document.values[path], path,
                                   label="expected a mapping with kind")  # fmt: skip
        raise JobFileError(file, [problem])
    if str(data.get("kind", "")).endswith("List") and isinstance(data.get("items"), list):
        for index, item in enumerate(data["items"]):
            yield from _items(file, document, (*path, "items", index), item)
    else:
        yield Fields(file, document, path, data)
