"""The way out of Kubeflow: the job file of a TFJob, or of a TrainJob that runs TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfk8s.errors import InvalidInput
from tfk8s.jobfile.text import MAX_BYTES
from tfk8s.render import yaml
from tfk8s.tools.kubeflow import assemble, objects, tfjob, trainjob
from tfk8s.tools.kubeflow.draft import Notes

_NETWORK = "only the pods of the cluster connect to its pods; network: {allow_from: …} lets others in"


@dataclass(frozen=True, slots=True)
class Converted:
    """A job file that was made from an object of Kubeflow.

    Attributes:
        kind: the kind of the object.
        name: the name of the object.
        data: the job file.
        notes: what the job file can't say, or says in another way; one sentence each.
    """

    kind: str
    name: str
    data: dict[str, Any]
    notes: tuple[str, ...]

    def text(self, file: str) -> str:
        """Return the job file as text, with the notes as comments.

        Args:
            file: the name of the file with the object.
        """
        notes = "".join(f"# - {sentence}\n" for sentence in self.notes)
        body = yaml.dump([self.data]).removeprefix("---\n")
        return f"# The programs of {self.kind} {self.name} in {file}, for `tfk8s run`. What differs:\n{notes}\n{body}"


def load(path: str) -> Converted:
    """Return the job file of the one TFJob or TrainJob in a file.

    Raises:
        JobFileError: the file is no YAML, or a field is not valid.
        InvalidInput: the file can't be read or does not have one such object, or no job file can say what it says.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InvalidInput(f'"{path}" can\'t be read: {getattr(error, "strerror", None) or error}') from error
    return convert(data, path)


def convert(data: bytes, file: str) -> Converted:
    """Return the job file of the one TFJob or TrainJob in a file.

    Args:
        data: the file, YAML or JSON.
        file: the file's name in messages.

    Raises:
        JobFileError: the file can't be read, or a field is not valid.
        InvalidInput: the file does not have one such object, or no job file can say what the object says.
    """
    notes = Notes()
    found = objects.choose(data, file, notes)
    metadata = found.job.fields("metadata")
    name = metadata.text("name") or metadata.text("generateName").rstrip("-")
    if not name:
        raise metadata.error("", f"this {found.kind} has no name", "expected metadata: {name: …}")
    if found.kind == tfjob.KIND:
        keys, drafts = tfjob.read(found.job, notes)
    else:
        keys, drafts = trainjob.read(found.job, found.runtimes, notes)
    keys |= objects.metadata_keys(metadata, notes)
    made = assemble.job_file(name, keys, drafts, notes)
    return Converted(found.kind, name, made, (*notes.all(), _NETWORK))
