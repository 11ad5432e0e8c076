"""The way out of Kubeflow: the job file of a TFJob."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfk8s.errors import InvalidInput
from tfk8s.features.init.kubeflow import assemble, objects, tfjob
from tfk8s.jobfile.text import MAX_BYTES
from tfk8s.render import yaml

_NETWORK = "only the pods of the cluster connect to its pods; network: {allow_from: …} lets others in"


@dataclass(frozen=True, slots=True)
class Converted:
    """A job file that was made from a TFJob.

    Attributes:
        name: the name of the TFJob.
        data: the job file.
        notes: what the job file can't say, or says in another way; one sentence each.
    """

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
        return f"# The programs of TFJob {self.name} in {file}, for `tfk8s run`. What differs:\n{notes}\n{body}"


def load(path: str) -> Converted:
    """Return the job file of the one TFJob in a file.

    Raises:
        JobFileError: the file is no YAML, or a field is not valid.
        InvalidInput: the file can't be read or does not have one TFJob, or no job file can say what the TFJob says.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InvalidInput(f'"{path}" can\'t be read: {getattr(error, "strerror", None) or error}') from error
    return convert(data, path)


def convert(data: bytes, file: str) -> Converted:
    """Return the job file of the one TFJob in a file.

    Args:
        data: the file, YAML or JSON.

    Raises:
        JobFileError: the file can't be read, or a field is not valid.
        InvalidInput: the file does not have one TFJob, or no job file can say what the TFJob says.
    """
    notes: list[str] = []
    job = objects.choose(data, file, notes)
    metadata = job.fields("metadata")
    name = metadata.text("name") or metadata.text("generateName").rstrip("-")
    if not name:
        raise metadata.error("", "this TFJob has no name", "expected metadata: {name: …}")
    keys, replicas = tfjob.read(job, notes)
    keys |= objects.metadata_keys(metadata, notes)
    made = assemble.job_file(name, keys, replicas, notes)
    return Converted(name, made, (*dict.fromkeys(notes), _NETWORK))
