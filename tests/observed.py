"""Waits for what clusters on Kubernetes become: the part that tests in namespaces of their own share."""

from __future__ import annotations

from collections.abc import Callable

from tfk8s import polling
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.status import ClusterStatus, Phase

WAIT = 120.0


class Observed:
    """A namespace with clusters.

    Attributes:
        backend: the back end for its clusters.
    """

    backend: KubernetesBackend

    def until(self, name: str, condition: Callable[[ClusterStatus], object]) -> ClusterStatus:
        """Wait until the status of a cluster meets a condition; return the status."""
        seen: list[ClusterStatus] = []

        def found() -> ClusterStatus | None:
            seen[:] = [self.backend.observe(name)]
            return seen[0] if condition(seen[0]) else None

        return polling.wait_until(found, lambda: f"{name}: {[str(task.state) for task in seen[0].tasks[:5]]}", WAIT)

    def until_ready(self, name: str) -> ClusterStatus:
        """Wait until all tasks of a cluster run."""
        return self.until(name, runs)

    def until_said(self, name: str, words: str, job: str = "") -> str:
        """Wait until the reason of all tasks of a cluster, or of a job, has these words; return the first reason."""

        def reasons(status: ClusterStatus) -> list[str]:
            return [task.reason for task in status.tasks if job in ("", task.task.job)]

        return reasons(self.until(name, lambda found: all(words in reason for reason in reasons(found))))[0]


def runs(found: ClusterStatus) -> bool:
    """Return whether all tasks of a cluster run."""
    return all(task.phase in (Phase.READY, Phase.RUNNING) for task in found.tasks)
