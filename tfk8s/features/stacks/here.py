"""The work of a cluster's tasks and scripts now, for the question why nothing moves."""

from __future__ import annotations

from collections.abc import Iterable

from tfk8s.backends.protocol import Backend
from tfk8s.backends.stacks import Stacks
from tfk8s.core.status import ClusterStatus
from tfk8s.core.task_names import choose


def read(backend: Backend, name: str, words: Iterable[str] = ()) -> tuple[ClusterStatus, list[Stacks]]:
    """Return the status of a cluster, and what its tasks and running scripts do.

    Args:
        words: "worker/1", "worker" for all tasks of the job, a script's name, or a script's process id on this machine;
            none means all tasks and scripts.

    Raises:
        InvalidInput: no task, no job and no running script has such a name.
    """
    status = backend.observe(name)
    return status, backend.inside.stacks(name, choose(status, words))
