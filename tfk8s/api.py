"""The functions that return clusters: `tfk8s.up`, `tfk8s.connect`, and what the commands call besides."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tfk8s.backends.options import BackendOptions
from tfk8s.backends.select import choose
from tfk8s.cluster.handle import TIMEOUT, Cluster
from tfk8s.cluster.readiness import OnChange
from tfk8s.core.plan import Plan
from tfk8s.core.spec import JobFile
from tfk8s.core.status import ClusterStatus

_SUFFIXES = (".yaml", ".yml", ".json")


def up(
    job_file: str | Path | JobFile,
    *,
    local: bool | None = None,
    context: str | None = None,
    namespace: str | None = None,
    timeout: float | None = TIMEOUT,
    keep: bool = False,
    allow_exposed_ports: bool = False,
    on_change: OnChange | None = None,
) -> Cluster:
    """Make a job file's cluster so, and wait until every task answers.

    A cluster that is there already with the same job file is used as it is.

    Args:
        job_file: its path, or what `tfk8s.load` returned.
        local: on this machine; None leaves it to the environment variable `TFK8S_LOCAL`.
        context: of the kubeconfig; None is its current one.
        namespace: in Kubernetes; None is the job file's, else the context's.
        timeout: in seconds; None waits for nothing.
        keep: the cluster stays, even after a `with` and after a failure; otherwise one that was made here goes.
        allow_exposed_ports: on a machine without namespaces, let others reach the tasks' ports.
        on_change: called with what is there at first, and whenever it has changed.

    Returns:
        The cluster, to be used in a `with`, or until its `down`.

    Raises:
        InvalidInput: the job file has problems, or another cluster has its name.
        ClusterError: the cluster can't come up.
        WaitTimeout: it did not come up in time.
    """
    spec = _load(job_file)
    cluster = find(spec, BackendOptions(local, context, namespace, allow_exposed_ports), keep=keep)
    with contextlib.ExitStack() as removal:
        removal.enter_context(cluster)
        cluster.apply(spec)
        if timeout is not None:
            cluster.wait(timeout, on_change)
        removal.pop_all()
    return cluster


def plan(job_file: str | Path | JobFile, where: BackendOptions) -> Plan:
    """Return what `up` would change; changes nothing.

    Raises:
        InvalidInput: the job file has problems, or `up` could not use it.
    """
    spec = _load(job_file)
    return choose(where, spec).plan(spec)


def connect(
    name: str | Path, *, local: bool | None = None, context: str | None = None, namespace: str | None = None
) -> Cluster:
    """Return a cluster that is there; leaving its `with` leaves it as it is.

    Args:
        name: the cluster's, or the path of its job file.
        local: on this machine; None leaves it to the environment variable `TFK8S_LOCAL`.
        context: of the kubeconfig; None is its current one.
        namespace: in Kubernetes; None is the job file's, else the context's.

    Raises:
        NoSuchCluster: there is none of that name.
    """
    cluster = find(name, BackendOptions(local, context, namespace))
    cluster.status()
    return cluster


def list_clusters(where: BackendOptions) -> list[ClusterStatus]:
    """Return all clusters of this user there, by name."""
    return choose(where).clusters()


def find(cluster: str | Path | JobFile, options: BackendOptions, *, keep: bool = True) -> Cluster:
    """Return a handle on a cluster, whether the cluster exists or not.

    Args:
        cluster: its name, its job file's path, or its job file.
        options: choose the backend.
        keep: leaving the handle's `with` does not remove a cluster that its `apply` created.
    """
    if isinstance(cluster, JobFile) or names_file(cluster):
        spec = _load(cluster)
        return Cluster(choose(options, spec), spec.name, keep=keep)
    return Cluster(choose(options), str(cluster), keep=keep)


def names_file(name: str | Path) -> bool:
    """Return whether a word that may be a cluster's name or a job file's path is the latter."""
    text = str(name)
    return isinstance(name, Path) or os.sep in text or text.endswith(_SUFFIXES) or _is_file(text)


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # no name of a file at all, such as one of 300 letters
        return False


def _load(job_file: str | Path | JobFile) -> JobFile:
    if isinstance(job_file, JobFile):
        return job_file
    from tfk8s.jobfile.loader import load

    return load(job_file)
