"""The valid values of a job file, for checks that compare several of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfk8s.core.roles import DATA
from tfk8s.errors import Problem
from tfk8s.jobfile.document import Document, Path


class ValidValues:
    """The valid values of a document."""

    def __init__(self, document: Document, bad: set[Path]) -> None:
        """Take a document, and the paths of its invalid values."""
        self.document = document
        self._bad = bad | document.broken
        jobs = self.get("jobs")
        self.jobs: dict[str, object] = jobs if isinstance(jobs, dict) else {}
        # Whether the file's jobs are all in `jobs`.
        self.complete = bool(self.jobs) and ("jobs", "<<") not in document.broken

    def get(self, *path: str | int) -> Any:
        """Return the value at a path, or None if it is absent or invalid."""
        if any(path[:length] in self._bad for length in range(len(path) + 1)):
            return None
        value: Any = self.document.data
        for step in path:
            if isinstance(step, str) and (not isinstance(value, dict) or step not in value):
                return None
            value = value[step]
        return value

    def entries(self, *path: str | int) -> Iterator[tuple[Path, Any]]:
        """Yield the paths and values of the valid entries of a list or mapping."""
        value = self.get(*path)
        steps: list[str | int] = list(range(len(value)) if isinstance(value, list) else value or ())
        for step in steps:
            if (entry := self.get(*path, step)) is not None:
                yield (*path, step), entry

    def tasks(self, job: str) -> int | None:
        """Return the number of a job's tasks that tfk8s starts, or None if it starts none."""
        value = self.get("jobs", job)
        if isinstance(value, dict):
            return self.get("jobs", job, "tasks") or 1
        return value if isinstance(value, int) else None

    def is_data(self, job: str) -> bool:
        """Return whether a job runs tf.data's service."""
        value = self.get("jobs", job)
        return isinstance(value, dict) and self.get("jobs", job, "kind") == DATA

    def problem(
        self, code: str, message: str, path: Path, *, key: bool = False, label: str = "", advice: str | None = None
    ) -> Problem:
        """Return a problem at a value, or at its key."""
        locations = self.document.keys if key else self.document.values
        return self.document.problem(code, message, locations[path], path, label=label, advice=advice)
