"""The leases of the backend in memory."""

from __future__ import annotations

from tfk8s.core.spec import JobFile


class FakeLeases:
    """Holds the leases of job files that were applied.

    Attributes:
        are_shared: whether other processes hold the leases, too.
    """

    def __init__(self) -> None:
        self.are_shared = False
        self._held: set[str] = set()

    def apply(self, job_file: JobFile) -> None:
        """Hold the lease of a job file, or none."""
        self._held = self._held - {job_file.name} if job_file.lease is None else self._held | {job_file.name}

    def holds(self, name: str) -> bool:
        """Return whether the cluster was applied with a lease."""
        return name in self._held

    def release(self, name: str) -> bool:
        """Return whether other processes hold the cluster's lease."""
        return self.holds(name) and self.are_shared
