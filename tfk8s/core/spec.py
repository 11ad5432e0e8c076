"""The job file as plain frozen data, and the ClusterSpec in it.

Nothing here reads, writes or checks: `load` makes a `JobFile` from YAML and refuses what is wrong, `views` and
`manifests` turn it into what tasks and Kubernetes are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfk8s.core import naming
from tfk8s.core.quantity import Quantity

API_VERSION = "tfk8s.dev/v1"
DEFAULT_PORT = 2222
DEFAULT_TTL = 3600
EVALUATOR = "evaluator"
MAX_TASKS = 10_000  # of a job

# The cluster as TensorFlow knows it: the addresses ("host:port") of each job's tasks, by index.
ClusterSpec = dict[str, list[str]]


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One member of a job: one TensorFlow server."""

    job: str
    index: int

    def __str__(self) -> str:
        return naming.task(self.job, self.index)

    @property
    def device(self) -> str:
        """As TensorFlow writes it: `/job:worker/task:1`."""
        return naming.device(self.job, self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Something mounted into tasks: exactly one of `claim`, `secret`, `config_map` and `size` is given.

    Attributes:
        path: where, an absolute path.
        claim: the name of a PersistentVolumeClaim.
        secret: the name of a Secret.
        config_map: the name of a ConfigMap.
        size: an empty folder of at most this size, which goes with the pod.
        read_only: tasks can't write to it.
    """

    path: str
    claim: str | None = None
    secret: str | None = None
    config_map: str | None = None
    size: Quantity | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who may connect to the cluster, or whom it may connect to; at least one attribute is given.

    Attributes:
        namespace: pods of that namespace; None means the cluster's own, where `pods` is given.
        pods: only pods with these labels.
        cidr: addresses of this range, such as "10.0.0.0/8".
        ports: only these ports; all where empty. Connections to the cluster are to the tasks' port alone.
    """

    namespace: str | None = None
    pods: Mapping[str, str] = field(default_factory=dict)
    cidr: str | None = None
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Exceptions from the default, which is that only the cluster's own pods talk to each other.

    Attributes:
        allow_from: who else may connect to the tasks' port.
        allow_to: what tasks and session scripts may connect to, besides the cluster and DNS.
    """

    allow_from: tuple[Peer, ...] = ()
    allow_to: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Who the processes in a pod are.

    Attributes:
        user, group: the numbers they run as; never 0.
        service_account: the pods' ServiceAccount (its token is not mounted); None is the namespace's default.
    """

    user: int = 65532
    group: int = 65532
    service_account: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A named group of like tasks.

    Attributes:
        name: as in the ClusterSpec.
        tasks: how many, from 1.
        addresses: where the tasks' servers already run, by index; empty where tfk8s starts them.
        image: overrides the cluster's.
        cpu: cores; request and limit.
        memory: bytes; request and limit.
        gpus: how many a task gets, of `gpu_resource`.
        accelerator: the kind of GPU, as the node label `cloud.google.com/gke-accelerator` names it.
        node_selector, tolerations: as in a pod's spec.
        env: environment variables, over the cluster's.
        labels, annotations: for the pods, besides tfk8s' own.
        volumes: besides the cluster's.
        preload: Python modules that a task imports before it starts its server, for operations of their own.
        port: overrides the cluster's.
        spot: run on spot capacity.
        priority: the name of a PriorityClass.
    """

    name: str
    tasks: int = 1
    addresses: tuple[str, ...] = ()
    image: str | None = None
    cpu: Quantity | None = None
    memory: Quantity | None = None
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    accelerator: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    preload: tuple[str, ...] = ()
    port: int | None = None
    spot: bool = False
    priority: str | None = None

    def __iter__(self) -> Iterator[Task]:
        return (Task(self.name, index) for index in range(self.tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One cluster, as its job file says.

    Attributes:
        name: the cluster's.
        jobs: the master's job first, then by name.
        master: the job whose task 0 sessions connect to.
        image: what the tasks run in; needed on Kubernetes only.
        namespace: where in Kubernetes; None is the context's.
        port: of every task in Kubernetes, and of the first task on this machine.
        env, volumes: for every task.
        queue: the name of a Kueue LocalQueue.
        network, security: who may connect, and who the processes are.
        ttl: seconds that a finished submit stays, with its log.
    """

    name: str
    jobs: tuple[Job, ...]
    master: str
    image: str | None = None
    namespace: str | None = None
    port: int = DEFAULT_PORT
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    queue: str | None = None
    network: Network = Network()
    security: Security = Security()
    ttl: int = DEFAULT_TTL

    def __iter__(self) -> Iterator[Task]:
        return (task for job in self.jobs for task in job)

    def job(self, name: str) -> Job:
        """Return the job of that name.

        Raises:
            KeyError: there is none.
        """
        for job in self.jobs:
            if job.name == name:
                return job
        raise KeyError(name)

    @property
    def master_task(self) -> Task:
        """The task that sessions connect to."""
        return Task(self.master, 0)

    @property
    def has_addresses(self) -> bool:
        """Whether the servers already run, so that tfk8s only connects to them."""
        return any(job.addresses for job in self.jobs)

    def cluster_spec(self, address: Callable[[Task], str], seen_by: str | None = None) -> ClusterSpec:
        """Return the ClusterSpec.

        Args:
            address: where a task listens, "host:port".
            seen_by: the job whose tasks are told; only an evaluator sees the evaluator
                (strategies count it as one of the training cluster otherwise, tensorflow#46169).
        """
        return {
            job.name: [address(task) for task in job]
            for job in self.jobs
            if job.name != EVALUATOR or seen_by == EVALUATOR
        }


def default_master(jobs: list[str]) -> str | None:
    """Return the master's job where the job file names none, or None where no job can be it."""
    candidates = sorted(name for name in jobs if name != EVALUATOR)
    for name in ("master", "chief", "worker"):
        if name in candidates:
            return name
    return candidates[0] if candidates else None
