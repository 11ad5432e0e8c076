"""The end of a cluster that a command or a `with` has started."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace

from tfk8s import spans
from tfk8s.backends.protocol import Backend
from tfk8s.cluster import scripts
from tfk8s.core.spec import JobFile
from tfk8s.errors import NoSuchCluster


def leave(backend: Backend, job_file: JobFile, error: BaseException | None, exit_code: int, *, created: bool) -> None:
    """Remove a cluster that this process created or whose lease this process holds, unless others use the cluster.

    While another `run` holds the lease, the cluster stays, and the last `run` removes the cluster. While other scripts
    run in the cluster, the cluster stays, without a lease.

    Args:
        backend: the backend that runs the cluster.
        job_file: the cluster, as it was applied.
        error: ends the use of the cluster, so that other scripts do not count; None for no error.
        exit_code: of this process' script.
        created: whether this process created the cluster.
    """
    name, is_leased = job_file.name, backend.leases.holds(job_file.name)
    if not created and not is_leased:
        return
    with contextlib.suppress(NoSuchCluster):
        if is_leased and backend.leases.release(name):
            return
        if not created and backend.observe(name).limits.lease is None:  # an `up` has taken the lease away
            return
        if error or not scripts.any_runs(backend, name, has_failed=exit_code != 0):
            with spans.part("remove cluster"):
                backend.delete(name)
        elif is_leased:
            tasks = Counter(task.task.job for task in backend.observe(name).tasks)  # `tfk8s scale` may have run
            backend.apply(replace(job_file.scaled(tasks), lease=None))
