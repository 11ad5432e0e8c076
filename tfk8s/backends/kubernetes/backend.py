"""The backend whose tasks are pods."""

from __future__ import annotations

import dataclasses
import functools
import socket
from collections.abc import Iterator, Mapping, Sequence

from tfk8s.backends import suspended
from tfk8s.backends.kubernetes import (
    claims,
    deletion,
    events,
    parts,
    rates,
    status,
)
from tfk8s.backends.kubernetes.api_server import logs, streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.transport import IN_CLUSTER
from tfk8s.backends.kubernetes.history import PodHistory
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.backends.kubernetes.workloads import (
    deployed,
    gangs,
    lease,
    lifetime,
    program_jobs,
    task_pods,
)
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.backends.kubernetes.workloads.record_notes import RecordNotes
from tfk8s.backends.options import BackendOptions
from tfk8s.core.events import Event
from tfk8s.core.plan import Plan, Scaling
from tfk8s.core.script import LogLine, LogOptions
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus
from tfk8s.render.pods import Object
from tfk8s.sessions.timing import FAR


class KubernetesBackend:
    """Runs each task as a pod.

    Args:
        context: of the kubeconfig; None is the current context.
        namespace: None is the job file's, else the context's.
    """

    name = "kubernetes"
    timing = FAR

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        self._client = Client(context)
        self._namespace = namespace
        options = {"context": context, "namespace": namespace}
        self.flags = "".join(f" --{name} {value}" for name, value in options.items() if value)
        self._applied: dict[str, str] = {}  # namespaces by the cluster's name
        self.leases = lease.Renewals(self._client)
        self._notes = RecordNotes(self._client, self._namespace_of)
        given = (self._client, self._find, self.flags)
        self.scripts, self.detached = parts.PodScripts(*given), parts.DetachedPods(*given)
        self.inside, self.files = parts.InsidePods(*given), parts.PodFiles(*given, self._namespace_for)
        self._rates = functools.cache(functools.partial(rates.read, self._client))
        self.history = PodHistory(
            self,
            lambda name: claims.location(self._client, self._namespace_of(name)),
            lambda name: self._rates(self._namespace_of(name)),
            self._notes,
        )
        self.suspending = parts.SuspendingPods(*given)
        self.shared = parts.SharedNamespace(self._client, namespace, self._namespace_of)

    def objects(self, job_file: JobFile) -> list[Object]:
        """Return the objects that `apply` applies.

        Raises:
            InvalidInput: the job file lacks what Kubernetes needs.
        """
        from tfk8s.backends.kubernetes import job_files

        return job_files.objects(self._namespace_for(job_file), job_file)

    def apply(self, job_file: JobFile) -> bool:
        """Apply the job file's objects; return whether anything changed. With a lease, renew the lease from now on.

        The lease is left out if this user may not create the cluster's own Job, or if a cluster without one runs.
        """
        self.leases.end(job_file.name)
        try:
            plan = self._apply(job_file)
        except lifetime.MayNotLimit as error:
            if not lease.is_dispensable(job_file):
                raise
            lease.say_why_none(error)
            return self.apply(lease.without(job_file))
        if job_file.lease and lease.is_all_of(plan):  # another command has made the cluster in the meantime
            self.apply(lease.without(job_file))
            return False
        self._applied[job_file.name] = self._namespace_for(job_file)
        if job_file.lease:
            self.leases.begin(self._namespace_for(job_file), job_file.name, job_file.lease)
        if job_file.warm and not job_file.script.gpus and any(job.has_server for job in job_file.jobs):
            from tfk8s.backends.kubernetes.scripts import warm_pods

            warm_pods.start(self._client, self._find(job_file.name))
        return bool(plan)

    def plan(self, job_file: JobFile) -> Plan:
        """Return the changes that `apply` would make, from a dry run of the API server."""
        plan = self._apply(job_file, dry_run=True)
        return dataclasses.replace(plan, rates=self._rates(self._namespace_for(job_file)))

    def scale(self, name: str, tasks: Mapping[str, int]) -> Scaling:
        """Set the numbers of tasks."""
        from tfk8s.backends.kubernetes import apply

        return apply.scale(self._client, self._find(name), tasks)

    def observe(self, name: str) -> ClusterStatus:
        """Return the current status."""
        return status.read(self._client, self._find(name))

    def observer(self, name: str) -> Informer:
        """Watch the cluster's objects, and record why its pods end."""
        return Informer(self._client, self._namespace_of(name), name)

    def clusters(self) -> list[ClusterStatus]:
        """Return the clusters of the backend's namespace, else of all namespaces that the user may read."""
        return status.clusters(self._client, self._namespace)

    def events(self, name: str, *, follow: bool) -> Iterator[Event]:
        """Yield Kubernetes' events of the cluster's objects and pods."""
        return events.read(self._client, self._find(name), follow=follow)

    def logs(self, name: str, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        """Yield the lines of the tasks' logs."""
        cluster = self._find(name)
        if not options.follow:
            pods = task_pods.names(self._client, cluster, tasks)
            return logs.read(self._client, cluster.namespace, list(pods.items()), options)
        return self._follow_logs(cluster, tasks, options)

    def _follow_logs(self, cluster: DeployedCluster, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        with Informer(self._client, cluster.namespace, cluster.name) as view:
            pods = [task_pods.LoggedPod(view, cluster, task) for task in tasks]
            yield from logs.follow(self._client, cluster.namespace, pods, options)

    def locator(self, name: str) -> BackendOptions:
        """Return the options by which another process finds the cluster, also after `kubectl config use-context`."""
        context = None if self._client.context == IN_CLUSTER else self._client.context
        return BackendOptions(local=False, context=context, namespace=self._namespace_of(name))

    def dial(self, name: str, task: Task) -> socket.socket:
        """Return a stream to a task's server, through the API server."""
        cluster = self._find(name)
        suspended.require_awake(name, cluster.suspended, self.flags)
        pod = task_pods.names(self._client, cluster, [task])[task]
        return streams.dial(self._client, cluster.namespace, pod, cluster.port(task))

    def restart(self, name: str, task: Task | None) -> bool:
        """Restart a task in its pod, or (None) re-create the pods of all tasks.

        A pod's status does not show that process 1 runs a program again.
        """
        from tfk8s.backends.kubernetes import restart

        cluster = self._find(name)
        if task is None:
            gangs.scale(self._client, cluster.namespace, name, cluster.workloads.values(), {})
            restart.recreate_pods(self._client, cluster.namespace, name, cluster.workloads.values())
            program_jobs.restart(self._client, cluster)
            return True
        pod = task_pods.names(self._client, cluster, [task])[task]
        if job := cluster.program_job(task.job):
            with status.naming_state(self._client, cluster, task):
                restart.restart_program(self._client, job, task, pod)
        elif not restart.replace_elsewhere(self._client, cluster, task):
            restart.restart_task(self._client, cluster.namespace, pod)
        return job is None

    def delete(self, name: str, *, delete_claims: bool = False) -> list[str]:
        """Delete the cluster, and wait until its pods are gone."""
        self.leases.end(name)
        with self.history.removing(name):
            return deletion.delete(
                self._client, self._namespace_of(name), name, end_record=self._notes.end, delete_claims=delete_claims
            )

    def _apply(self, job_file: JobFile, *, dry_run: bool = False) -> Plan:
        from tfk8s.backends.kubernetes import job_files

        return job_files.apply(self._client, self._namespace_for(job_file), job_file, self._notes, dry_run=dry_run)

    def _namespace_for(self, job_file: JobFile) -> str:
        return self._namespace or job_file.namespace or self._client.namespace

    def _namespace_of(self, name: str) -> str:
        return self._applied.get(name) or self._namespace or self._client.namespace

    def _find(self, name: str) -> DeployedCluster:
        found = deployed.find(self._client, self._namespace_of(name), name)
        self._notes.see(name, found.other_jobs)
        return found
