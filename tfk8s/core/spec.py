"""The job file as plain frozen data, and the ClusterSpec in it. `jobfile.loader` makes a `JobFile` from YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tfk8s.core import naming, roles
from tfk8s.core.lifetime import Limits
from tfk8s.core.programs import Program, RunPolicy
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import ScriptResources
from tfk8s.core.storage.volumes import Volume

API_VERSION = "tfk8s.dev/v1"
DEFAULT_PORT = 2222
DEFAULT_TTL = 3600
MAX_TASKS = 10_000  # of a job

# TensorFlow's ClusterSpec: the addresses ("host:port") of each job's tasks, by index.
ClusterSpec = dict[str, list[str]]


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One task of a job: one TensorFlow server, one process of the job's program, or one of tf.data's service."""

    job: str
    index: int

    def __str__(self) -> str:
        return naming.task(self.job, self.index)

    @property
    def device(self) -> str:
        """The name in TensorFlow, `/job:worker/task:1`."""
        return naming.device(self.job, self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSource:
    """The source of an environment variable's value, with exactly one of `secret` and `config_map`.

    Attributes:
        secret: the name of a Secret.
        config_map: the name of a ConfigMap.
        key: the key in the Secret or ConfigMap.
    """

    secret: str | None = None
    config_map: str | None = None
    key: str


# Environment variables by name. On this machine, a variable with a source keeps the value that `up` inherited.
Env = Mapping[str, str | EnvSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The placement of a job's tasks in relation to each other, with exactly one of `spread` and `pack`.

    Attributes:
        spread: the tasks are spread evenly over these: "host", "zone", or a label of nodes.
        pack: all tasks share one of these.
        required: whether a task waits for a node that fits; otherwise the scheduler only prefers such a node.
    """

    spread: str | None = None
    pack: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Pods or addresses that may connect to the cluster, or to which the cluster may connect.

    Attributes:
        namespace, pods: the pods of this namespace (None is the cluster's) with these labels.
        cidr, except_: the addresses of this range, such as "10.0.0.0/8", without those of the ranges in `except_`.
        ports: only these ports; empty means all. Connections to the cluster always go to the tasks' port.
    """

    namespace: str | None = None
    pods: Mapping[str, str] = field(default_factory=dict)
    cidr: str | None = None
    except_: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The connections to and from the tasks. By default, only the cluster's pods may connect to the tasks.

    Attributes:
        allow_from: the other peers that may connect to the tasks' port.
        allow_to: the only peers, besides the cluster and DNS, that tasks and scripts may connect to; None allows all.
    """

    allow_from: tuple[Peer, ...] = ()
    allow_to: tuple[Peer, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The identity of the processes in a pod.

    Attributes:
        user, group: the ids of the processes; never 0.
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
        tasks: the number of tasks, from 1.
        addresses: the addresses of servers that already run, by index; empty if tfk8s starts the servers.
        image: overrides the cluster's.
        cpu: cores; request and limit.
        memory: bytes; request and limit.
        shm: the bytes of `/dev/shm`, besides `memory`.
        gpus: the number of GPUs of a task.
        gpus_optional: whether a task may run if TensorFlow does not see its GPUs.
        gpu_resource: the resource that the GPUs are.
        accelerator: the kind of GPU, as the node label `cloud.google.com/gke-accelerator` names it.
        node_selector, tolerations: as in a pod's spec.
        env: environment variables, over the cluster's.
        labels, annotations: of the pods, over the cluster's.
        volumes: besides the cluster's.
        preload: Python modules, such as custom operations, that a task imports before it starts its server.
        folder: the absolute folder of the job file, on the machine that read it, if the job has modules to preload.
        port: overrides the cluster's.
        spot: whether the tasks run on spot capacity.
        priority_class: the name of a PriorityClass.
        topology: the placement of the tasks in relation to each other; None prefers different hosts.
        pod: is merged into the spec of the pods, after the cluster's.
        program: runs in each task instead of a server; None for servers.
        tf1: whether `import tensorflow` gives the program TensorFlow 1's API.
        kind: `roles.DATA` for tf.data's service; None for servers and programs.
    """

    name: str
    tasks: int = 1
    addresses: tuple[str, ...] = ()
    image: str | None = None
    cpu: Quantity | None = None
    memory: Quantity | None = None
    shm: Quantity | None = None
    gpus: int = 0
    gpus_optional: bool = False
    gpu_resource: str = "nvidia.com/gpu"
    accelerator: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    env: Env = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    preload: tuple[str, ...] = ()
    folder: str = ""
    port: int | None = None
    spot: bool = False
    priority_class: str | None = None
    topology: Topology | None = None
    pod: Mapping[str, Any] = field(default_factory=dict)
    program: Program | None = None
    tf1: bool = False
    kind: str | None = None

    @property
    def has_server(self) -> bool:
        """True if the tasks have TensorFlow servers."""
        return self.program is None and self.kind is None

    @property
    def takes_part(self) -> bool:
        """True if sessions and programs see the tasks in the ClusterSpec."""
        return roles.takes_part(self.name, is_data=self.kind == roles.DATA)

    @property
    def required_gpus(self) -> int:
        """The number of GPUs that TensorFlow must see in each task."""
        return 0 if self.gpus_optional or self.kind == roles.DATA else self.gpus

    def __iter__(self) -> Iterator[Task]:
        return (Task(self.name, index) for index in range(self.tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """The job file of one cluster.

    Attributes:
        name: the cluster's name.
        jobs: the master's job first, then by name.
        master: the job whose task 0 sessions connect to.
        image: the image of the tasks; only Kubernetes needs it.
        image_pull_secrets: the names of Secrets with the credentials of image registries.
        namespace: the namespace in Kubernetes; None is the context's.
        port: the port of every task in Kubernetes, and of the first task on this machine.
        env, volumes: the variables and volumes of every task.
        labels, annotations: of all pods, besides those of tfk8s.
        queue: the name of a Kueue LocalQueue.
        avoid: the names of nodes in Kubernetes that no pod of the cluster may use.
        network, security: the peers, and the identity of the processes.
        ttl: the seconds for which Kubernetes keeps a finished script and its log.
        pod: is merged into the spec of all pods, with the rules of Kubernetes' strategic merge.
        max_duration: the seconds after which the cluster is removed, from its first `up`; None for no limit.
        idle: the seconds without a session and a script after which the cluster is removed; None for no limit.
        grace: the seconds that programs and scripts have after SIGTERM to save; None for the defaults.
        drain: the drains of nodes that may evict servers with variables: one of `roles.DRAINS`.
        warm: whether scripts in Kubernetes run in warm pods: False never, True from `up` on, None from the first on.
        script: the resources of the pods of scripts in Kubernetes.
        run: the rules of the run, if jobs have programs.
        lease: the seconds after which Kubernetes removes the cluster once its `tfk8s run` is gone; None for no lease.
            On this machine, a cluster with any lease ends at once. No key of the job file: `run` sets the lease.
    """

    name: str
    jobs: tuple[Job, ...]
    master: str
    image: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    namespace: str | None = None
    port: int = DEFAULT_PORT
    env: Env = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    queue: str | None = None
    avoid: tuple[str, ...] = ()
    network: Network = Network()
    security: Security = Security()
    ttl: int = DEFAULT_TTL
    pod: Mapping[str, Any] = field(default_factory=dict)
    max_duration: int | None = None
    idle: int | None = None
    grace: int | None = None
    drain: str = roles.BLOCK
    warm: bool | None = None
    script: ScriptResources = field(default_factory=ScriptResources)
    run: RunPolicy = field(default_factory=RunPolicy)
    lease: int | None = None

    def __iter__(self) -> Iterator[Task]:
        return (task for job in self.jobs for task in job)

    def job(self, name: str) -> Job:
        """Return the job with this name.

        Raises:
            KeyError: no job has this name.
        """
        for job in self.jobs:
            if job.name == name:
                return job
        raise KeyError(name)

    def scaled(self, tasks: Mapping[str, int]) -> JobFile:
        """Return the job file with other numbers of tasks, by job."""
        return replace(self, jobs=tuple(replace(job, tasks=tasks.get(job.name, job.tasks)) for job in self.jobs))

    @property
    def master_task(self) -> Task:
        """The task to which sessions connect."""
        return Task(self.master, 0)

    @property
    def master_env(self) -> Env:
        """The environment variables of the master, which scripts get too."""
        return {**self.env, **self.job(self.master).env}

    @property
    def has_addresses(self) -> bool:
        """True if the servers already run, so that tfk8s only connects to them."""
        return any(job.addresses for job in self.jobs)

    @property
    def limits(self) -> Limits:
        """The times after which tfk8s removes the cluster."""
        return Limits(self.max_duration, self.idle, self.lease)

    def cluster_spec(self, address: Callable[[Task], str], seen_by: str | None = None) -> ClusterSpec:
        """Return the ClusterSpec.

        Args:
            address: a function from a task to its address, "host:port".
            seen_by: the job that gets the ClusterSpec. It sees itself and the jobs that take part in the training.
        """
        seen = (job for job in self.jobs if job.takes_part or job.name == seen_by)
        return {job.name: [address(task) for task in job] for job in seen}
