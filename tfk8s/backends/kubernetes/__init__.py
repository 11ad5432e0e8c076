"""Clusters of pods, in any Kubernetes cluster that a kubeconfig names."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence

from tfk8s import render
from tfk8s.backends.kubernetes import apply, events, logs, paths, restart, scheduling, status, streams
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.backends.kubernetes.status import DeployedCluster
from tfk8s.backends.kubernetes.transport import IN_CLUSTER
from tfk8s.backends.options import BackendOptions
from tfk8s.core import naming
from tfk8s.core.events import Event
from tfk8s.core.plan import Plan
from tfk8s.core.script import LogLine, Outcome, Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus
from tfk8s.render.pods import Object


class KubernetesBackend:
    """Runs each task as a pod.

    Args:
        context: of the kubeconfig; None is its current one.
        namespace: None is the job file's own, else the context's.
    """

    name = "kubernetes"

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        self._client = Client(context)
        self._namespace = namespace
        given = {"context": context, "namespace": namespace}
        self.flags = "".join(f" --{name} {value}" for name, value in given.items() if value)
        self._applied: dict[str, str] = {}

    def objects(self, job_file: JobFile) -> list[Object]:
        """Return what `apply` applies.

        Raises:
            InvalidInput: the job file lacks what Kubernetes needs.
        """
        return render.objects(job_file, self._where(job_file))

    def apply(self, job_file: JobFile) -> bool:
        """Make the cluster so; return whether anything changed."""
        plan = self._apply(job_file)
        self._applied[job_file.name] = self._where(job_file)
        return bool(plan)

    def plan(self, job_file: JobFile) -> Plan:
        """Return what `apply` would change, according to the API server; changes nothing."""
        return self._apply(job_file, dry_run=True)

    def scale(self, name: str, tasks: Mapping[str, int]) -> bool:
        """Give jobs so many tasks each, and start all tasks anew; return whether anything changed."""
        return apply.scale(self._client, self._find(name), tasks)

    def observe(self, name: str) -> ClusterStatus:
        """Return what is there now."""
        return status.read(self._client, self._find(name))

    def observer(self, name: str) -> Informer:
        """Watch the cluster's objects, and why its tasks' pods end."""
        return Informer(self._client, self._home(name), name)

    def clusters(self) -> list[ClusterStatus]:
        """Return the clusters of the namespace that was given, or of all that the user may see."""
        return status.clusters(self._client, self._namespace)

    def events(self, name: str, *, follow: bool) -> Iterator[Event]:
        """Yield what Kubernetes tells of the cluster's objects and pods."""
        return events.read(self._client, self._find(name), follow=follow)

    def logs(self, name: str, tasks: Sequence[Task], *, follow: bool, tail: int | None) -> Iterator[LogLine]:
        """Yield what tasks wrote."""
        namespace = self._find(name).namespace
        pods = [(task, naming.pod(name, task.job, task.index)) for task in tasks]
        if not follow:
            return logs.read(self._client, namespace, pods, tail)
        query = paths.of_cluster(name)
        return logs.follow(
            self._client,
            namespace,
            pods,
            tail,
            lambda: bool(self._client.get(paths.collection("StatefulSet", namespace), query)["items"]),
        )

    def run(self, name: str, script: Script) -> Outcome:
        """Run a session script as a Job beside the cluster's tasks; its output is this process' standard output."""
        from tfk8s.backends.kubernetes import script_jobs  # with what packs folders, 14 ms that no other command needs

        return script_jobs.run(self._client, self._find(name), script)

    def start(self, name: str, script: Script) -> str:
        """Make the script's Job, and return its name."""
        from tfk8s.backends.kubernetes import script_jobs

        return script_jobs.start(self._client, self._find(name), script)

    def show(self, name: str, script: str, *, follow: bool, tail: int | None) -> int:
        """Pass on what a script's pod wrote."""
        from tfk8s.backends.kubernetes import script_jobs

        return script_jobs.show(self._client, self._find(name), script, follow=follow, tail=tail).code

    def stop(self, name: str, script: str) -> None:
        """Delete a script's Job."""
        from tfk8s.backends.kubernetes import script_jobs

        script_jobs.stop(self._client, self._find(name), script)

    def locator(self, name: str) -> BackendOptions:
        """Return the options by which another process finds the cluster, also after `kubectl config use-context`."""
        context = None if self._client.context == IN_CLUSTER else self._client.context
        return BackendOptions(local=False, context=context, namespace=self._home(name))

    def dial(self, name: str, task: Task) -> socket.socket:
        """Return a stream to a task's server, through the API server."""
        cluster = self._find(name)
        pod = naming.pod(name, task.job, task.index)
        return streams.dial(self._client, cluster.namespace, pod, cluster.port(task))

    def restart(self, name: str, task: Task | None) -> None:
        """End a task's server, which starts again in its pod, or delete the pods of all."""
        cluster = self._find(name)
        if task is not None:
            restart.restart_task(self._client, cluster.namespace, naming.pod(name, task.job, task.index))
        else:
            restart.recreate_pods(self._client, cluster.namespace, name, list(cluster.sets))

    def delete(self, name: str) -> None:
        """Remove the cluster, and wait until its pods are gone."""
        apply.delete(self._client, self._home(name), name)

    def _apply(self, job_file: JobFile, *, dry_run: bool = False) -> Plan:
        self._client.require_version()
        objects = self.objects(job_file)
        scheduling.require_room(self._client, objects)
        return apply.apply(self._client, self._where(job_file), job_file.name, objects, dry_run=dry_run)

    def _where(self, job_file: JobFile) -> str:
        return self._namespace or job_file.namespace or self._client.namespace

    def _home(self, name: str) -> str:
        return self._applied.get(name) or self._namespace or self._client.namespace

    def _find(self, name: str) -> DeployedCluster:
        return status.find(self._client, self._home(name), name)
