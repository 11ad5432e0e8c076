"""The functions that find and create clusters: `tfk8s.up`, `tfk8s.connect`, and those of the commands."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tfk8s.backends.options import BackendOptions
from tfk8s.backends.select import choose
from tfk8s.cluster import program_files
from tfk8s.cluster.gpus import require_gpus
from tfk8s.cluster.handle import Cluster
from tfk8s.cluster.program_run import RunEvents, require_programs, require_up
from tfk8s.cluster.readiness import TIMEOUT, OnChange
from tfk8s.cluster.scripts import require_servers
from tfk8s.core.history import redaction
from tfk8s.core.history.entry import Row
from tfk8s.core.lifetime import LEASE
from tfk8s.core.plan import Plan
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile
from tfk8s.core.status import ClusterStatus
from tfk8s.core.storage.volumes import KeptClaim
from tfk8s.task.programs import strategies

_PAST = re.compile(r"[a-z][a-z0-9-]*@\d{1,9}", re.ASCII)
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
    python: str | Path | None = None,
    on_change: OnChange | None = None,
) -> Cluster:
    """Apply a job file, and wait until every server answers and every program runs.

    A cluster that already runs with this job file stays unchanged.

    Args:
        job_file: the job file's path, or the result of `tfk8s.load`.
        local: run on this machine; None uses the environment variable `TFK8S_LOCAL`.
        context: the kubeconfig's context; None is its current one.
        namespace: the Kubernetes namespace; None is the job file's, or the context's.
        timeout: in seconds; the default is 15 minutes while a node starts or pulls an image. None does not wait.
        keep: keep the cluster after a failure, and at the end of a `with`.
        allow_exposed_ports: start in this machine's own network, even if other users can connect to the tasks.
        python: the interpreter of tasks and scripts on this machine; None is the active environment's, else this one.
        on_change: called with the first status, and with each status that differs from the one before.

    Returns:
        The cluster, for a `with`, or to be removed by its `down`.

    Raises:
        InvalidInput: the job file is invalid, or another cluster has its name.
        ClusterError: the cluster can't start, a program has failed, or TensorFlow does not see a task's GPUs.
        WaitTimeout: the cluster did not start in time.
    """
    strategies.refuse_without_cluster()
    spec = _load(job_file)
    named = None if python is None else str(python)
    cluster = find(spec, BackendOptions(local, context, namespace, allow_exposed_ports, named), keep=keep)
    with contextlib.ExitStack() as removal, cluster.recorder.command("up", hidden=_values(spec), starts=True):
        removal.enter_context(cluster)
        cluster.apply(spec)
        if timeout is not None:
            require_up(cluster.backend, cluster.wait(timeout, on_change))
        removal.pop_all()
    return cluster


def run(
    spec: JobFile,
    options: BackendOptions,
    events: RunEvents,
    script: Script | None = None,
    *,
    get: Sequence[str] = (),
    recording: Any = None,
    timeout: float = TIMEOUT,
    keep: bool = False,
) -> int:
    """Start a cluster, run its programs or a script, and remove the cluster; return the exit code of the run.

    Args:
        spec: the job file.
        options: they choose the backend.
        events: the caller's part.
        script: the script; None runs the job file's programs.
        get: what to copy when the programs end, as `tfk8s run --get` does.
        recording: the timeline of the script, from the feature; None records nothing.
        timeout: in seconds, until the cluster is up.
        keep: leave the cluster running. Otherwise its lease removes the cluster after SIGKILL of this process, too.

    Raises:
        InvalidInput: the job file has no programs, no servers for the script, or no task with the files to copy.
        ClusterError: the cluster can't start, TensorFlow does not see a task's GPUs, or not all files were copied.
        WaitTimeout: the cluster did not start in time.
    """
    cluster = find(spec, options, keep=keep)
    if script is None:
        require_programs(spec)
    else:
        require_servers(spec)
        cluster.backend.scripts.check(script)
    wanted = program_files.parse(get, spec, keep=keep)
    words = script.runner_arguments() if script else []
    folder = script.path.absolute().parent if script else None
    hidden = _values(spec)
    with (
        cluster.recorder.command("run", words, folder=folder, hidden=hidden, starts=True) as end,
        program_files.copied(cluster.backend, spec, wanted) as files,
        cluster,
    ):
        try:
            cluster.apply(spec, lease=None if keep else LEASE, resumes=False, environment=files.environment)
            status = cluster.wait(timeout, events.changed)
            require_gpus(cluster.backend, status, keep=keep)
            events.is_up(cluster, status)
            if script is None:
                end.exit_code = events.follow(cluster, files.settle)
                files.report(end.exit_code)
            else:
                end.exit_code = cluster.run(script, recording=recording)
            return end.exit_code
        finally:
            events.ends()


def feature(name: str) -> ModuleType:
    """Return the half of a feature that runs here, which is imported when somebody asks for the feature."""
    return importlib.import_module(f"tfk8s.features.{name}.here")


def past(name: str) -> Any:
    """Return the entry of the history that a command names in place of a cluster, "mnist@3"; None for another name.

    Raises:
        InvalidInput: there is no such entry.
    """
    return feature("history").parse(name) if _PAST.fullmatch(name) else None


def _values(spec: JobFile) -> list[str]:
    """Return the values of a job file's environment variables."""
    from tfk8s.backends.plain_data import job_file_to_dict

    return sorted(redaction.secrets_of(job_file_to_dict(spec)))


def plan(job_file: str | Path | JobFile, options: BackendOptions) -> Plan:
    """Return the changes that `up` would make.

    Raises:
        InvalidInput: the job file is invalid, or the backend can't run it.
    """
    spec = _load(job_file)
    return choose(options, spec).plan(spec)


def connect(
    name: str | Path, *, local: bool | None = None, context: str | None = None, namespace: str | None = None
) -> Cluster:
    """Return an existing cluster. Leaving its `with` keeps the cluster.

    Args:
        name: the cluster's name, or the path of its job file.
        local: run on this machine; None uses the environment variable `TFK8S_LOCAL`.
        context: the kubeconfig's context; None is its current one.
        namespace: the Kubernetes namespace; None is the job file's, or the context's.

    Raises:
        NoSuchCluster: no cluster has this name.
    """
    strategies.refuse_without_cluster()
    cluster = find(name, BackendOptions(local, context, namespace))
    cluster.status()
    return cluster


def diff(
    job_file: str | Path | JobFile,
    *,
    local: bool | None = None,
    context: str | None = None,
    namespace: str | None = None,
) -> Plan:
    """Return what `up` would change, without changing anything; arguments and errors as for `up`."""
    return plan(job_file, BackendOptions(local, context, namespace))


def ls(*, local: bool | None = None, context: str | None = None, namespace: str | None = None) -> list[ClusterStatus]:
    """Return the state of each of your clusters, of all namespaces without `namespace`."""
    return list_clusters(BackendOptions(local, context, namespace))


def history(
    name: str | None = None,
    last: int | None = None,
    *,
    claim: str | None = None,
    bucket: str | None = None,
    shared: bool = False,
    image: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
) -> list[Row]:
    """Return the clusters that ran on this machine or by commands of this user, the newest first.

    With `claim`, `bucket` or `shared`, the newest of a shared history come into that of this user before.

    Args:
        name: only clusters of this name.
        last: at most so many; of a claim, 30 by default.
        claim: the PersistentVolumeClaim with a shared history.
        bucket: the bucket with one, s3://NAME/PREFIX or gs://NAME/PREFIX.
        shared: use what the namespace names.
        image: of the pod that reads the claim; None is that of a cluster there.
        context: the kubeconfig's context; None is its current one.
        namespace: the claim's; None is the context's.

    Raises:
        InvalidInput: there is no such claim, or the arguments contradict each other.
        ClusterError: the claim or bucket can't be read, or does not answer in time (`WaitTimeout`).
    """
    found = feature("history")
    if found.is_shared(claim, context or namespace or image, bucket=bucket, shared=shared):
        pull_history(BackendOptions(False, context, namespace), claim, bucket=bucket, name=name, last=last, image=image)
    return list[Row](found.rows(name, last))


def pull_history(options: BackendOptions, claim: str | None, **chosen: Any) -> Any:
    """Bring records of a shared history into that of this user, as `pull` of the feature does."""
    return feature("history").pull(lambda: choose(options).shared, claim, **chosen)


def list_clusters(options: BackendOptions) -> list[ClusterStatus]:
    """Return all clusters of this user, sorted by name."""
    return choose(options).clusters()


def list_with_claims(options: BackendOptions) -> tuple[list[ClusterStatus], list[KeptClaim]]:
    """Return all clusters of this user, and the claims that `up` made for clusters that were removed."""
    backend = choose(options)
    clusters = backend.clusters()
    existing = {(status.name, status.location) for status in clusters}
    claims = backend.shared.claims() if backend.shared else []
    return clusters, [claim for claim in claims if (claim.cluster, claim.location) not in existing]


def find(cluster: str | Path | JobFile, options: BackendOptions, *, keep: bool = True) -> Cluster:
    """Return a handle on a cluster. The cluster need not exist.

    Args:
        cluster: the cluster's name, its job file's path, or its job file.
        options: they choose the backend.
        keep: keep the cluster at the end of the handle's `with`, even if the handle created it.
    """
    if isinstance(cluster, JobFile) or names_file(cluster):
        spec = _load(cluster)
        return Cluster(choose(options, spec), spec.name, keep=keep, features=feature)
    return Cluster(choose(options), str(cluster), keep=keep, features=feature)


def names_file(name: str | Path) -> bool:
    """Return whether a word is the path of a job file, rather than a cluster's name."""
    text = str(name)
    return isinstance(name, Path) or os.sep in text or text.endswith(_SUFFIXES) or _is_file(text)


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # not a file's name, for example because of its 300 letters
        return False


def _load(job_file: str | Path | JobFile) -> JobFile:
    if isinstance(job_file, JobFile):
        return job_file
    from tfk8s.jobfile.loader import load

    return load(job_file)
