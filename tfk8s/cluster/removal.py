"""The end of a cluster that a command or a `with` has started."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace

from tfk8s.backends.protocol import Backend
from tfk8s.cluster import scripts
from tfk8s.core.spec import JobFile
from tfk8s.errors import NoSuchCluster


def remove_unless_used(backend: Backend, job_file: JobFile, error: BaseException | None, exit_code: int) -> None:
    """Remove a cluster, unless other scripts run in it: then the cluster stays, without a lease.

    Args:
        backend: the backend that runs the cluster.
        job_file: the cluster, as it was applied.
        error: ends the use of the cluster, so that other scripts do not count; None for no error.
        exit_code: of this process' script.
    """
    if error or not scripts.any_runs(backend, job_file.name, has_failed=exit_code != 0):
        with contextlib.suppress(NoSuchCluster):
            backend.delete(job_file.name)
    elif job_file.lease is not None:
        tasks = Counter(task.task.job for task in backend.observe(job_file.name).tasks)  # `tfk8s scale` may have run
        backend.apply(replace(job_file.scaled(tasks), lease=None))
