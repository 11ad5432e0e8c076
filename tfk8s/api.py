"""What `tfk8s.up` and `tfk8s.connect` do, and `tfk8s run`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tfk8s import polling
from tfk8s.backends.options import BackendOptions
from tfk8s.backends.protocol import Backend
from tfk8s.backends.select import choose
from tfk8s.cluster.handle import TIMEOUT, Cluster, discard
from tfk8s.cluster.readiness import OnChange
from tfk8s.core.plan import Plan
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile
from tfk8s.core.status import ClusterStatus, ScriptPhase
from tfk8s.errors import InvalidInput, NoSuchCluster, WaitTimeout

_ENDING_SECONDS = 5.0  # kubelet tells of a container's end two seconds later; who lost a task ends before that
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
    spec = job_file if isinstance(job_file, JobFile) else _load(job_file)
    backend = choose(BackendOptions(local, context, namespace, allow_exposed_ports), spec)
    making = _Making(backend, spec, keep=keep)
    try:
        cluster = making.apply()
        if timeout is not None:
            cluster.wait(timeout, on_change)
    except BaseException:
        making.undo()
        raise
    return cluster


def plan(job_file: str | Path | JobFile, where: BackendOptions) -> Plan:
    """Return what `up` would change; changes nothing.

    Raises:
        InvalidInput: the job file has problems, or `up` could not use it.
    """
    spec = job_file if isinstance(job_file, JobFile) else _load(job_file)
    return choose(where, spec).plan(spec)


def run(
    job_file: str | Path | JobFile,
    script: Script,
    where: BackendOptions,
    *,
    timeout: float = TIMEOUT,
    keep: bool = False,
    on_change: OnChange | None = None,
    on_ready: Callable[[Cluster], None] | None = None,
    before_removal: Callable[[], None] | None = None,
    on_kept: Callable[[Cluster], None] | None = None,
) -> int:
    """Make a job file's cluster so, run a script in it, and remove it; return the script's exit code.

    A cluster that was there before is used, and stays; likewise one in which scripts of others run at the end.

    Args:
        job_file: its path, or what `tfk8s.load` returned.
        script: what to run.
        where: where.
        timeout: for the cluster to come up, in seconds.
        keep: don't remove it.
        on_change: called with what is there at first, and whenever it has changed.
        on_ready: called before the script runs.
        before_removal: called when the removal, which must not be interrupted, is about to begin.
        on_kept: called where the cluster that was made stays, since others use it.
    """
    spec = job_file if isinstance(job_file, JobFile) else _load(job_file)
    backend = choose(where, spec)
    making = _Making(backend, spec, keep=keep)
    # Two `finally`, so that even a signal which comes as the inner one begins finds the outer one.
    try:
        try:
            cluster = making.apply()
            cluster.wait(timeout, on_change)
            if on_ready is not None:
                on_ready(cluster)
            code = cluster.run(script)
            making.keep = keep or not cluster.made or _in_use(cluster, on_kept, _ENDING_SECONDS if code else 0.0)
            return code
        finally:
            if before_removal is not None:
                before_removal()
    finally:
        making.undo()


class _Making:
    """The making of a job file's cluster, to be undone where what follows fails.

    Attributes:
        keep: it stays as it is.
    """

    def __init__(self, backend: Backend, spec: JobFile, *, keep: bool) -> None:
        self.keep = keep
        self._backend, self._spec = backend, spec
        self._made = not _exists(backend, spec.name)

    def apply(self) -> Cluster:
        """Make the cluster so."""
        try:
            changed = self._backend.apply(self._spec)
        except InvalidInput:
            self._made = False  # nothing was changed
            raise
        self._made = self._made and changed  # somebody else may have been quicker
        return Cluster(self._backend, self._spec.name, made=self._made, changed=changed, keep=self.keep)

    def undo(self) -> None:
        """Remove the cluster, if it was made here."""
        if self._made and not self.keep:
            discard(self._backend, self._spec.name)


def _in_use(cluster: Cluster, on_kept: Callable[[Cluster], None] | None, patience: float) -> bool:
    """Return whether scripts of others run in a cluster; the own one is waited for, which may seem to run still."""

    def none_runs() -> bool:
        return all(script.phase is not ScriptPhase.RUNNING for script in cluster.status().scripts)

    try:
        polling.wait_until(none_runs, "scripts to end", patience)
    except WaitTimeout:
        if on_kept is not None:
            on_kept(cluster)
        return True
    return False


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


def find(name: str | Path, where: BackendOptions) -> Cluster:
    """Return a handle on the cluster of that name, or of that job file, whether it is there or not."""
    if names_file(name):
        spec = _load(name)
        return Cluster(choose(where, spec), spec.name)
    return Cluster(choose(where), str(name))


def names_file(name: str | Path) -> bool:
    """Return whether a word that may be a cluster's name or a job file's path is the latter."""
    text = str(name)
    return isinstance(name, Path) or os.sep in text or text.endswith(_SUFFIXES) or _is_file(text)


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # no name of a file at all, such as one of 300 letters
        return False


def _load(path: str | Path) -> JobFile:
    from tfk8s.jobfile.loader import load

    return load(path)


def _exists(backend: Backend, name: str) -> bool:
    try:
        backend.observe(name)
    except NoSuchCluster:
        return False
    return True
