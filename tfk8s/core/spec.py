"""The job file as plain frozen data, and the ClusterSpec in it. `jobfile.loader` makes a `JobFile` from YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, replace
from typing import Any

from tfk8s.core import naming, roles
from tfk8s.core.job_file.keys import key
from tfk8s.core.job_file.mappings import Env, IdleLimits, Metrics, Network, Security, SharedHistory, Topology
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
class Job:
    """A job of the ClusterSpec: a number of tasks with the same settings.

    Attributes:
        name: as in the ClusterSpec.
        addresses: the addresses of servers that already run, by index; empty if tfk8s starts the servers.
        folder: the absolute folder of the job file, on the machine that read it, if the job has modules to preload.
    """

    name: str
    tasks: int = key("COUNT", "The number of tasks.", 4, default=1)
    image: str | None = key("IMAGE", "The image of this job. It overrides the cluster's.", "registry.example/tf:2.21")
    cpu: Quantity | None = key(
        "CPU", "The CPU cores of a task: request and limit. Default: a request of 100m.", 2, "500m"
    )
    memory: Quantity | None = key(
        "SIZE", "The memory of a task: request and limit. Default: a request of 512Mi.", "4Gi"
    )
    shm: Quantity | None = key(
        "SIZE",
        "The size of /dev/shm, in memory that the task gets besides `memory`. Default: the node's, mostly 64Mi.",
        "8Gi",
    )
    gpus: int = key("GPUS", "The number of GPUs of a task.", 1, default=0)
    gpus_optional: bool = key(
        "BOOLEAN", "Let a task run even if TensorFlow does not see its GPUs.", True, default=False
    )
    gpu_resource: str = key(
        "GPU_RESOURCE", "The name of the GPU resource in Kubernetes.", "amd.com/gpu", default="nvidia.com/gpu"
    )
    accelerator: str | None = key("ACCELERATOR", "The GPU model, as in the value of GKE's node label.", "nvidia-l4")
    node_selector: Mapping[str, str] = key(
        "LABELS", "The labels that a node must have.", {"disktype": "ssd"}, default={}
    )
    tolerations: tuple[Mapping[str, Any], ...] = key(
        "TOLERATIONS", "The node taints that the tasks tolerate, written as in a pod's spec.",
        [{"key": "dedicated", "operator": "Exists"}], default=(),
    )  # fmt: skip
    env: Env = key(
        "ENV", "Environment variables. They override the cluster's variables.", {"OMP_NUM_THREADS": "4"}, default={}
    )
    labels: Mapping[str, str] = key(
        "POD_LABELS", "Labels of the pods. They override the cluster's labels.", {"team": "ads"}, default={}
    )
    annotations: Mapping[str, str] = key(
        "POD_ANNOTATIONS", "Annotations of the pods. They override the cluster's annotations.",
        {"example.com/owner": "ads@example.com"}, default={},
    )  # fmt: skip
    volumes: tuple[Volume, ...] = key(
        "VOLUMES", "Volumes, in addition to the cluster's volumes.", [{"path": "/data", "claim": "datasets"}],
        default=(),
    )  # fmt: skip
    preload: tuple[str, ...] = key(
        "MODULES",
        "Python modules that a task imports before it starts its server, because they register operations.",
        ["tensorflow_text"], default=(),
    )  # fmt: skip
    port: int | None = key("PORT", "The port of this job's tasks. It overrides the cluster's port.", 2300)
    spot: str | None = key("SPOT", "Run the tasks on spot nodes: of gke, as true means, karpenter, aks or eks.", True)
    priority_class: str | None = key("NAME", "The name of a PriorityClass.", "training")
    topology: Topology | None = key(
        "TOPOLOGY", "The placement of the tasks in relation to each other. If absent, on different hosts if possible."
    )
    pod: Mapping[str, Any] = key(
        "POD",
        "A part of a pod's spec, which is merged into the spec of this job's pods after the cluster's.",
        default={},
    )
    program: Program | None = key(
        "PROGRAM",
        "A program, which each task runs to its end instead of a server. The program is a Python file beside the job "
        "file with arguments, or a command of the image.",
        ["train.py", "--epochs", "3"],
        ["python3", "-m", "trainer"],
    )
    tf1: bool = key("BOOLEAN", "Give the program of Python the TensorFlow 1 API as `tensorflow`.", True, default=False)
    kind: str | None = key(
        "KIND",
        "data for tf.data's service: task 0 is the dispatcher, the others are workers. If absent, the tasks are "
        "servers or run a program.",
        roles.DATA,
    )
    addresses: tuple[str, ...] = ()
    folder: str = ""

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
    """A cluster of TensorFlow servers, for tfk8s.

    Attributes:
        jobs: the master's job first, then by name.
        lease: the seconds after which Kubernetes removes the cluster once its `tfk8s run` is gone; None for no lease.
            On this machine, a cluster with any lease ends at once. No key of the job file: `run` sets the lease.
    """

    name: str = key("CLUSTER_NAME", "The cluster's name, and the prefix of its objects.", "mnist", required=True)
    jobs: tuple[Job, ...] = key(
        "JOBS",
        "The jobs of the ClusterSpec by name. A job is a number of tasks, a mapping with more settings, or the "
        "addresses of running servers.",
        {"chief": 1, "ps": {"tasks": 2, "cpu": 2, "memory": "4Gi"}},
        {"worker": ["10.0.0.5:2222"]},
        required=True,
    )
    image: str | None = key(
        "IMAGE",
        "The image of tasks: any image that contains TensorFlow. Only Kubernetes needs one, here or in each job.",
        "tensorflow/tensorflow:2.21.0",
    )
    image_pull_secrets: tuple[str, ...] = key(
        "SECRETS", "The names of Secrets with the credentials of image registries.", ["registry-login"], default=()
    )
    master: str = key(
        "TEXT",
        "The job whose task 0 sessions connect to. If absent: master, chief, worker, or the first by name.",
        "chief",
        default=MISSING,
    )
    namespace: str | None = key(
        "LABEL", "The Kubernetes namespace. If absent, the namespace of the kubeconfig context.", "training"
    )
    port: int = key(
        "PORT", "The port of every task on Kubernetes, and of the first task on this machine.", 2222,
        default=DEFAULT_PORT,
    )  # fmt: skip
    env: Env = key("ENV", "Environment variables of every task.", {"TF_CPP_MIN_LOG_LEVEL": "1"}, default={})
    labels: Mapping[str, str] = key(
        "POD_LABELS", "Labels of all pods, those of scripts too.", {"team": "ads"}, default={}
    )
    annotations: Mapping[str, str] = key(
        "POD_ANNOTATIONS", "Annotations of all pods, those of scripts too.", {"linkerd.io/inject": "disabled"},
        default={},
    )  # fmt: skip
    volumes: tuple[Volume, ...] = key(
        "VOLUMES", "Volumes of every task.", [{"path": "/data", "claim": "datasets", "read_only": True}], default=()
    )
    queue: str | None = key("QUEUE_NAME", "The name of a Kueue LocalQueue.", "team-a")
    gang: bool | None = key(
        "BOOLEAN",
        "Start all tasks together or none, by a PodGroup. Without this key, that holds where the server has PodGroups.",
        True,
    )
    avoid: tuple[str, ...] = key(
        "NODES", "The names of nodes that no pod of the cluster may use.", ["gpu-node-7"], default=()
    )
    network: Network = key("NETWORK", "The allowed connections.", default=Network())
    metrics: Metrics | None = key(
        "METRICS", "Serve the metrics of each task to Prometheus, on a port of its own. On Kubernetes only.",
        True, {"from": [{"namespace": "monitoring"}]},
    )  # fmt: skip
    history: SharedHistory | None = key(
        "HISTORY", "A history that others read. On Kubernetes only.", {"claim": "history"}, {"bucket": "s3://team"}
    )
    security: Security = key("SECURITY", "The user, group and ServiceAccount of the pods.", default=Security())
    ttl: int = key(
        "DURATION", "The time for which a finished script of `tfk8s submit` is kept, with its log.", "2h", 600,
        default=DEFAULT_TTL,
    )  # fmt: skip
    pod: Mapping[str, Any] = key(
        "POD", "A part of a pod's spec, which is merged into the spec of all pods.", default={}
    )
    max_duration: int | None = key(
        "DURATION", "The time after which the cluster is removed, counted from its first `up`.", "8h", 28800
    )
    idle: int | IdleLimits | None = key(
        "IDLE",
        "The time without a session and a session script after which the cluster is removed. Or a mapping with that "
        "time as `remove`, and with the time after which the cluster is suspended.",
        "30m", {"suspend": "30m", "remove": "7d"},
    )  # fmt: skip
    grace: int | None = key(
        "DURATION",
        "The time that programs and scripts have to save after SIGTERM. If absent, programs have 2 seconds, and "
        "scripts end 15 seconds after Ctrl-C.", "30s", 30,
    )  # fmt: skip
    drain: str = key(
        "DRAIN",
        "What drains of nodes may do to the master and the ps, whose variables a restart loses. block forbids their "
        "eviction, allow permits the eviction of all tasks, idle permits theirs while nobody uses the cluster.",
        roles.WHILE_IDLE, default=roles.BLOCK,
    )  # fmt: skip
    warm: bool | None = key(
        "BOOLEAN",
        "Run scripts as forks in a warm pod, which `up` starts. Without this key, the first script starts it.",
        True,
    )
    script: ScriptResources = key("SCRIPT", "The resources of the pods of scripts.", default=ScriptResources())
    run: RunPolicy = key("RUN", "The rules of the run, if jobs have programs.", default=RunPolicy())
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
        idle = self.idle if isinstance(self.idle, IdleLimits) else IdleLimits(remove=self.idle)
        return Limits(self.max_duration, idle.remove, self.lease, idle.suspend)

    def cluster_spec(self, address: Callable[[Task], str], seen_by: str | None = None) -> ClusterSpec:
        """Return the ClusterSpec.

        Args:
            address: a function from a task to its address, "host:port".
            seen_by: the job that gets the ClusterSpec. It sees itself and the jobs that take part in the training.
        """
        seen = (job for job in self.jobs if job.takes_part or job.name == seen_by)
        return {job.name: [address(task) for task in job] for job in seen}
