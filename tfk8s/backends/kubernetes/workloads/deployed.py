"""Clusters in Kubernetes, as their StatefulSets and the Jobs of their programs describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfk8s.backends.history import places, writing
from tfk8s.backends.kubernetes import claims
from tfk8s.backends.kubernetes.api_server import errors, paths
from tfk8s.backends.kubernetes.api_server.client import Query, Reader
from tfk8s.backends.kubernetes.pods import containers
from tfk8s.backends.kubernetes.workloads import lifetime, suspension
from tfk8s.core import compact, naming
from tfk8s.core.addresses import POD_NAMESPACE
from tfk8s.core.compact import JobSize
from tfk8s.core.environment import DATA_SERVICE
from tfk8s.core.job_kinds import success_tasks
from tfk8s.core.lifetime import Suspension
from tfk8s.core.programs import Program, RunPolicy
from tfk8s.core.script import ScriptResources, parse_resources
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.errors import ClusterError, NoSuchCluster, there_are
from tfk8s.log import log
from tfk8s.render import manifests, pods
from tfk8s.render.pods import Object

_KINDS = ("StatefulSet", "Job")  # that clusters are found by
_WARM = {text: warm for warm, text in manifests.WARM_VALUES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedCluster:
    """A cluster as its StatefulSets and the Jobs of its programs describe it.

    Attributes:
        name, namespace: of the cluster.
        workloads: the StatefulSets and the Jobs of programs, by the job's DNS name.
        jobs: number of tasks and port of each job, the master's first.
        is_elastic: whether the cluster changes without a restart: each session brings the ClusterSpec to its servers.
        required_gpus: the number of GPUs that TensorFlow must see in a task, by the job's DNS name.
        other_jobs: the Jobs of the cluster's scripts and of its limits.
        warm: whether scripts run in warm pods: False never, True from `up` on; None from the first script on. The
            NetworkPolicy of a cluster from an earlier version has no ports for them.
        script: the resources of scripts, as the job file names them.
        data_service: the address of tf.data's dispatcher, "grpc://host:port"; "" without tf.data's service.
        suspended: since when and by whom the cluster is suspended; its workloads have the numbers of tasks of before.
    """

    name: str
    namespace: str
    workloads: Mapping[str, Object]
    jobs: Mapping[str, JobSize]
    is_elastic: bool = False
    required_gpus: Mapping[str, int] = field(default_factory=dict)
    other_jobs: Sequence[Object] = ()
    warm: bool | None = None
    script: ScriptResources = field(default_factory=ScriptResources)
    data_service: str = ""
    suspended: Suspension | None = None

    @property
    def master(self) -> Task:
        """The task that sessions connect to."""
        return Task(next(iter(self.jobs)), 0)

    @property
    def tasks(self) -> list[Task]:
        """All tasks, in the job file's order."""
        return [Task(job, index) for job, (count, _) in self.jobs.items() for index in range(count)]

    @property
    def target(self) -> str:
        """The address that sessions connect to."""
        return f"grpc://{self.address(self.master)}"

    @property
    def has_servers(self) -> bool:
        """True if sessions can connect to a task."""
        stateful_sets = [job for job in self.jobs if (self.workload(job) or {}).get("kind") == "StatefulSet"]
        return not all(map(self.is_data, stateful_sets))

    @property
    def grace(self) -> int | None:
        """The seconds that the job file's `grace` gives scripts to save; None without."""
        master = self.workload(self.master.job)
        return None if master is None else pods.grace_of(master)

    @property
    def success(self) -> tuple[Task, ...]:
        """The tasks whose programs' ends with code 0 are the run's success; empty without programs."""
        found = [item for item in self.workloads.values() if item["kind"] == "Job"]
        if not found:
            return ()
        annotations = found[0]["metadata"].get("annotations", {})
        jobs = tuple(
            Job(name=name, tasks=tasks, program=Program((name,)) if self.program_job(name) else None)
            for name, (tasks, _) in self.jobs.items()
        )
        run = RunPolicy(success=annotations.get(manifests.SUCCESS, ""))
        return tuple(success_tasks(JobFile(name=self.name, jobs=jobs, master=self.master.job, run=run)))

    def address(self, task: Task) -> str:
        """Return the address where a task listens."""
        return naming.pod_address(self.name, self.namespace, task.job, task.index, self.port(task))

    def port(self, task: Task) -> int:
        """Return the port where a task listens."""
        return self.jobs[task.job][1]

    def is_data(self, job: str) -> bool:
        """Return whether a job runs tf.data's service."""
        return self.data_service == f"grpc://{self.address(Task(job, 0))}"

    def workload(self, job: str) -> Object | None:
        """Return a job's StatefulSet, or the Job of its program."""
        return self.workloads.get(naming.dns_label(job))

    def program_job(self, job: str) -> Object | None:
        """Return the Job of a job's program; None if the job has servers."""
        found = self.workload(job)
        return found if found and found["kind"] == "Job" else None


def find(client: Reader, namespace: str, name: str) -> DeployedCluster:
    """Return the cluster of that name.

    Raises:
        NoSuchCluster: no cluster has that name and tasks.
    """
    query = paths.of_cluster(name)
    items = [*items_of(client, "StatefulSet", namespace, query), *items_of(client, "Job", namespace, query)]
    if not any(map(manifests.has_tasks, items)):
        raise no_such_cluster(client, namespace, name)
    return describe(items)


def items_of(client: Reader, kind: str, namespace: str | None, query: Query) -> list[Object]:
    """Return the objects of a kind, with the kind, which a list leaves out."""
    return [{**item, "kind": kind} for item in client.get(paths.collection(kind, namespace), query)["items"]]


def describe(items: Sequence[Object]) -> DeployedCluster:
    """Return the cluster that has these StatefulSets and Jobs.

    Raises:
        ClusterError: somebody else has made or changed the objects, so that they describe none.
    """
    try:
        return _describe(items)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        name, namespace = _key(next(filter(manifests.has_tasks, items)))
        raise ClusterError(
            f'the objects of cluster "{name}" in namespace "{namespace}" are not as tfk8s makes them: {error!r}',
            help=f"kubectl get statefulsets,jobs -n {namespace} -l {manifests.INSTANCE}={name} -o yaml shows them",
        ) from error


def _describe(items: Sequence[Object]) -> DeployedCluster:
    workloads = [item for item in items if manifests.has_tasks(item)]
    suspended = suspension.read(items)
    workloads = [suspension.awake(item, suspended) for item in workloads]
    metadata, environment = workloads[0]["metadata"], containers.template_variables(workloads[0])
    by_job = {item["metadata"]["labels"][manifests.COMPONENT]: item for item in workloads}
    return DeployedCluster(
        name=metadata["labels"][manifests.INSTANCE],
        namespace=metadata["namespace"],
        workloads=by_job,
        required_gpus={
            job: int(containers.template_variables(item).get("TFK8S_GPUS", "0")) for job, item in by_job.items()
        },
        jobs=_jobs(metadata, environment, by_job),
        is_elastic=manifests.JOBS in metadata.get("annotations", {}),
        warm=_WARM.get(metadata.get("annotations", {}).get(manifests.WARM), False),
        script=_script_resources(metadata),
        other_jobs=[item for item in items if not manifests.has_tasks(item)],
        suspended=suspended,
        data_service=environment.get(DATA_SERVICE, "").replace(POD_NAMESPACE, metadata["namespace"]),
    )


def _script_resources(metadata: Object) -> ScriptResources:
    """Return the resources of scripts; none from an annotation that somebody else has changed to nonsense."""
    try:
        return parse_resources(metadata.get("annotations", {}).get(manifests.SCRIPT_RESOURCES, ""))
    except ValueError:
        return ScriptResources()


def _jobs(metadata: Object, environment: Mapping[str, str], by_job: Mapping[str, Object]) -> dict[str, JobSize]:
    """Return the number of tasks and the port of each job. A job counts one task if its StatefulSet was deleted."""
    ports = metadata.get("annotations", {}).get(manifests.JOBS)
    if ports is None:
        return compact.parse_jobs(environment["TFK8S_JOBS"], int(environment["TFK8S_PORT"]))
    counts = {label: manifests.task_count(item) for label, item in by_job.items()}
    return {
        job: JobSize(counts.get(naming.dns_label(job), 1), port) for job, port in compact.parse_ports(ports).items()
    }


def no_such_cluster(client: Reader, namespace: str, name: str) -> NoSuchCluster:
    """Return the error for a name that no cluster in the namespace has. It names a namespace that has the cluster."""
    keys = sorted(set(map(_key, filter(manifests.has_tasks, _list_all(client, namespace)))))
    elsewhere = [other for cluster, other in keys if cluster == name]
    here = [cluster for cluster, other in keys if other == namespace]
    removed, moment = lifetime.removal(client, namespace, name)
    location = claims.location(client, namespace)
    writing.lose(
        name, location, f"removed {removed}" if removed else "lost: it was removed, and no command saw how", moment
    )
    return NoSuchCluster(
        f'there is no cluster "{name}" in namespace "{namespace}" of context "{client.context}"; '
        + (f"tfk8s removed it {removed}" if removed else there_are(here, "cluster")),
        help=f"it is in namespace {elsewhere[0]}: add --namespace {elsewhere[0]}"
        if elsewhere
        else f"`tfk8s up FILE` makes one{places.advice(name, location)}",
    )


def clusters(client: Reader, namespace: str | None) -> list[DeployedCluster]:
    """Return the clusters of a namespace or, with None, of all namespaces that the user may read, by name."""
    items = _list_all(client, client.namespace) if namespace is None else _list_in(client, namespace)
    keys = sorted(set(map(_key, filter(manifests.has_tasks, items))))
    found = []
    for key in keys:
        try:
            found.append(describe([item for item in items if _key(item) == key]))
        except ClusterError as error:  # whoever may create objects could keep all clusters from being listed
            log.warning("%s", error)
    return found


def _key(item: Object) -> tuple[str, str]:
    """Return the name and the namespace of an object's cluster; the name is "" if the object has none."""
    metadata = item["metadata"]
    return metadata["labels"].get(manifests.INSTANCE, ""), metadata["namespace"]


def _list_all(client: Reader, namespace: str) -> list[Object]:
    """Return the StatefulSets and Jobs of all clusters, or those of one namespace where the user may list no more."""
    with errors.suppress(403):
        return _list_in(client, None)
    return _list_in(client, namespace)


def may_list_all(client: Reader) -> bool:
    """Return whether the user may list the clusters of all namespaces."""
    with errors.suppress(403):
        for kind in _KINDS:
            client.get(paths.collection(kind, None), {**paths.labelled({manifests.NAME: "tfk8s"}), "limit": 1})
        return True
    return False


def _list_in(client: Reader, namespace: str | None) -> list[Object]:
    query = paths.labelled({manifests.NAME: "tfk8s"})
    return [item for kind in _KINDS for item in items_of(client, kind, namespace, query)]
