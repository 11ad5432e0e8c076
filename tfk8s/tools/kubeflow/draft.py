"""A job of the job file, as far as it has been read from an object of Kubeflow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class Notes:
    """Sentences about what a job file can't say, each once, in the order in which they were found."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}

    def add(self, sentence: str) -> None:
        """Add a sentence."""
        self._sentences.setdefault(sentence)

    def all(self) -> list[str]:
        """Return the sentences."""
        return list(self._sentences)


@dataclass(slots=True)
class Draft:
    """A job.

    Attributes:
        name: the job's name in the job file.
        keys: the job's keys in the job file.
        spec: what else the pod's spec has, for the key `pod`. The task's container has the name `server`.
        security: the keys of the job file's `security` that the pods have.
        pull_secrets: the names of Secrets for registries.
    """

    name: str
    keys: dict[str, Any]
    spec: dict[str, Any] = field(default_factory=dict)
    security: dict[str, Any] = field(default_factory=dict)
    pull_secrets: list[str] = field(default_factory=list)
