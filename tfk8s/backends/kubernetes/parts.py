"""The parts of the backend whose tasks are pods."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from tfk8s.backends import devices, suspended
from tfk8s.backends.kubernetes import claims, shared_history, status, suspend
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import MERGE, Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.nodes import free_gpus
from tfk8s.backends.kubernetes.workloads import bad_nodes, deployed, program_jobs, task_files, task_pods
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core.script import WHOLE_LOG, Download, LogOptions, Outcome, Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.storage.volumes import KeptClaim
from tfk8s.errors import InvalidInput

if TYPE_CHECKING:
    from tfk8s.backends.history.merging import Pulled
    from tfk8s.backends.kubernetes.scripts.stream.program_files import ProgramFiles
    from tfk8s.backends.kubernetes.scripts.tensorboard_pod import TensorBoardPod
    from tfk8s.backends.stacks import Stacks
    from tfk8s.backends.usage import Usage


class _Part:
    """A part of the backend.

    Args:
        find: returns the cluster of a name.
        flags: the options that choose the backend.
    """

    def __init__(self, client: Client, find: Callable[[str], DeployedCluster], flags: str) -> None:
        self._client, self._find, self._flags = client, find, flags

    def _find_awake(self, name: str) -> DeployedCluster:
        """Return a cluster that is not suspended."""
        cluster = self._find(name)
        suspended.require_awake(name, cluster.suspended, self._flags)
        return cluster

    def _find_servers(self, name: str) -> DeployedCluster:
        """Return a cluster to which sessions can connect.

        Raises:
            InvalidInput: all tasks of the cluster run programs.
        """
        cluster = self._find_awake(name)
        if not cluster.has_servers:
            raise devices.no_servers(name, self._flags)
        return cluster

    @contextlib.contextmanager
    def _container(self, name: str, task: Task) -> Iterator[tuple[str, str]]:
        """Yield the namespace and the pod of a task, whose state errors name."""
        cluster = self._find_awake(name)
        pod = task_pods.names(self._client, cluster, [task])[task]
        with status.naming_state(self._client, cluster, task):
            yield cluster.namespace, pod


class PodScripts(_Part):
    """Runs scripts and TensorBoard in pods beside the tasks."""

    in_pods = True

    def check(self, script: Script) -> None:
        """Raise an InvalidInput if the script's folder is too large."""
        from tfk8s.backends.kubernetes.scripts import script_archive  # imported in 14 ms

        script_archive.require_copy(script.path)

    def run(self, name: str, script: Script) -> Outcome:
        """Run a session script in the user's warm pod, or as a Job of its own, beside the cluster's tasks."""
        from tfk8s.backends.kubernetes.scripts import script_archive, script_jobs, warm_scripts  # imported in 14 ms

        cluster = self._find_servers(name)
        archive = script_archive.pack(script.path, script.requirements)
        outcome = None
        if warm_scripts.fits(cluster, script):
            outcome = warm_scripts.run(self._client, cluster, script, archive)
        return outcome or script_jobs.run(self._client, cluster, script, archive)

    def tensorboard(
        self, name: str, *, folder: str | None, requirements: Path | None, token: str, port: int
    ) -> AbstractContextManager[TensorBoardPod]:
        """Run TensorBoard in a pod, as `tensorboard_pod.run` does."""
        from tfk8s.backends.kubernetes.scripts import tensorboard_pod

        return tensorboard_pod.run(self._client, self._find_awake(name), folder, requirements, token, port)


class DetachedPods(_Part):
    """Runs scripts whose pods outlive this process."""

    def start(self, name: str, script: Script) -> str:
        """Create the script's Job; return the script's name."""
        from tfk8s.backends.kubernetes.scripts import script_jobs

        return script_jobs.start(self._client, self._find_servers(name), script)

    def show(self, name: str, script: str, options: LogOptions) -> int:
        """Write the output of a script's pod."""
        from tfk8s.backends.kubernetes.scripts import script_jobs

        return script_jobs.show(self._client, self._find(name), script, options).code

    def log(self, name: str, script: str, options: LogOptions = WHOLE_LOG) -> Iterator[str]:
        """Return the lines of a script's pod."""
        from tfk8s.backends.kubernetes.scripts import script_jobs

        return script_jobs.read(self._client, self._find(name), script, options)

    def stop(self, name: str, script: str) -> None:
        """Delete a script's Job."""
        from tfk8s.backends.kubernetes.scripts import script_jobs

        script_jobs.stop(self._client, self._find(name), script)


class InsidePods(_Part):
    """Reaches into the containers of tasks."""

    def execute(self, name: str, task: Task, command: Sequence[str]) -> int:
        """Run a command in the container of a task."""
        from tfk8s.backends.kubernetes.api_server import terminal

        with self._container(name, task) as (namespace, pod):
            return terminal.run(self._client, namespace, pod, command)

    def stacks(self, name: str, chosen: Sequence[str]) -> list[Stacks]:
        """Look into the containers of tasks and scripts."""
        from tfk8s.backends.kubernetes.scripts import inside_containers

        return inside_containers.read_stacks(self._client, self._find_awake(name), chosen)

    def usage(self, name: str, chosen: Sequence[str]) -> list[Usage]:
        """Measure the containers of tasks and scripts."""
        from tfk8s.backends.kubernetes.scripts import inside_containers

        return inside_containers.read_usage(self._client, self._find_awake(name), chosen)

    def end_programs(self, name: str, jobs: Sequence[str], *, succeeded: bool) -> None:
        """End Jobs of programs after the end of another Job, which ends only its own pods."""
        program_jobs.end(self._client, self._find(name), jobs, succeeded=succeeded)


class PodFiles(_Part):
    """Copies files between this machine and the containers of tasks.

    Args:
        namespace_for: returns the namespace of a job file's cluster.
    """

    def __init__(
        self, client: Client, find: Callable[[str], DeployedCluster], flags: str,
        namespace_for: Callable[[JobFile], str],
    ) -> None:  # fmt: skip
        super().__init__(client, find, flags)
        self._namespace_for = namespace_for

    def fetch(self, name: str, task: Task, download: Download) -> list[str]:
        """Copy files from the container of a task."""
        with self._container(name, task) as (namespace, pod):
            return task_files.fetch(self._client, namespace, pod, download)

    def send(self, name: str, task: Task, local: Path, path: str) -> None:
        """Copy files to the container of a task."""
        with self._container(name, task) as (namespace, pod):
            task_files.send(self._client, namespace, pod, local, path)

    def left(self, job_file: JobFile, wanted: Mapping[Task, Sequence[Download]]) -> ProgramFiles:
        """Copy the files of programs by streams to their pods, which wait for that."""
        from tfk8s.backends.kubernetes.scripts.stream import program_files

        namespace = self._namespace_for(job_file)
        program_files.require_connections(self._client, namespace)
        find = functools.partial(deployed.find, self._client, namespace, job_file.name)
        return program_files.ProgramFiles(self._client, find, wanted)


class SuspendingPods(_Part):
    """Suspends clusters of pods."""

    def suspend(self, name: str, by: str) -> bool:
        """End all pods but that of the limits."""
        return suspend.suspend(self._client, self._find(name), by)

    def resume(self, name: str) -> bool:
        """Let the StatefulSets and Jobs make their pods again."""
        return suspend.resume(self._client, self._find(name))


class SharedNamespace:
    """Shows what the clusters of a namespace share.

    Args:
        namespace: the one that the user has named; None is each that the user may read.
        namespace_of: returns the namespace of a cluster.
    """

    def __init__(self, client: Client, namespace: str | None, namespace_of: Callable[[str], str]) -> None:
        self._client, self._namespace, self._namespace_of = client, namespace, namespace_of

    def free_gpus(self) -> str:
        """Return the free GPUs by node; "" if the user may not list nodes."""
        with contextlib.suppress(ApiError):
            return free_gpus.describe(self._client, self._namespace or self._client.namespace)
        return ""

    def only_namespace(self) -> str:
        """Return the namespace of `clusters` if the user may list no others; "" if all are listed, or one is named."""
        return "" if self._namespace or deployed.may_list_all(self._client) else self._client.namespace

    def note_bad_places(self, name: str, pods: Sequence[str]) -> bool:
        """Note at pods that they lack their GPUs, so that the next start of their tasks avoids their nodes."""
        try:
            for pod in pods:
                path = paths.pod(self._namespace_of(name), pod)
                change = {"metadata": {"annotations": bad_nodes.lack_of_gpus(self._client.get(path))}}
                self._client.send("PATCH", path, None, change, MERGE)
        except ApiError:  # the user may not change pods, or the pod is gone
            return False
        return True

    def claims(self) -> list[KeptClaim]:
        """Return the claims that were made for clusters, in the namespaces of `clusters`."""
        return claims.kept(self._client, self._namespace)

    def pull_history(self, claim: str | None, *, cluster: str | None, last: int, image: str | None) -> Pulled:
        """Bring records into the history, by a pod that mounts the claim, or from the bucket that is named."""
        from tfk8s.backends.history import bucket_reader
        from tfk8s.backends.kubernetes.scripts import history_reader

        namespace = self._namespace or self._client.namespace
        if claim is None:
            shared = shared_history.find(self._client, namespace)
            if shared is None:
                raise InvalidInput(
                    f'namespace "{namespace}" names no shared history',
                    help=f"name the claim: tfk8s history --claim CLAIM; or create the ConfigMap "
                    f"{shared_history.CONFIG_MAP}, whose key {shared_history.KEY} has the line: claim: CLAIM",
                )
            if shared.bucket:
                return bucket_reader.pull(shared.bucket, shared.endpoint, cluster=cluster, last=last)
            claim = shared.claim or ""
        return history_reader.pull(self._client, namespace, claim, cluster=cluster, last=last, image=image)
