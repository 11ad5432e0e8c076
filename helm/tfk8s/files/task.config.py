"""The cluster, and the task of it that a process is: readers of all forms, and the form that TensorFlow takes.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from tfk8s.core import compact, naming, roles
from tfk8s.task.wire import field

# The addresses of each job's tasks, by index.
TaskAddresses = Mapping[str, Mapping[int, str]]

# TensorFlow takes as many threads as there are cores. A function on a worker holds a thread while it waits for its part
# on a ps, so that the functions of two coordinators take all threads of a server with two cores, and wait for ever.
# Three threads are enough for two coordinators.
DEFAULT_THREADS, MIN_THREADS = 16, 3

# The task that every elastic server starts as. A session's master can't have the name with which its server was started
# (Master::CreateSession in tensorflow/core/distributed_runtime/master.cc), and no job file has so many tasks.
OWN_JOB, OWN_INDEX = "tfk8s", 999_999

_LISTENS = " listens on port "


class TaskConfig:
    """The cluster of a process, and the task that the process is.

    Args:
        cluster: the ClusterSpec.
        job, index: the task.
        elastic: whether the server knows only itself, because each session brings the ClusterSpec. An evaluator, which
            no session's ClusterSpec has, knows itself by its own name.
    """

    def __init__(self, cluster: TaskAddresses, job: str, index: int, *, elastic: bool = False) -> None:
        self.cluster, self.job, self.index, self.elastic = cluster, job, index, elastic

    @property
    def name(self) -> str:
        """Its short name, `worker/1`."""
        return naming.task(self.job, self.index)

    @property
    def port(self) -> int:
        """The port of its server, on every interface."""
        return int(self.cluster[self.job][self.index].rpartition(":")[2])

    @property
    def size(self) -> int:
        """The number of the cluster's tasks."""
        return sum(map(len, self.cluster.values()))

    @property
    def cluster_json(self) -> str:
        """The cluster, as `--cluster-spec` takes it."""
        return json.dumps(self.cluster)

    @property
    def threads(self) -> int:
        """The `inter_op_parallelism_threads` of its server; 0 is TensorFlow's default, one for each core."""
        chosen = os.environ.get("TF_NUM_INTEROP_THREADS", "")
        if chosen.isdecimal() and int(chosen):
            return max(int(chosen), MIN_THREADS)
        return DEFAULT_THREADS if len(os.sched_getaffinity(0)) < DEFAULT_THREADS else 0

    @property
    def server(self) -> tuple[TaskAddresses, str, int]:
        """The ClusterSpec, the job and the index with which the server starts."""
        if self.elastic:
            job, index = (OWN_JOB, OWN_INDEX) if roles.takes_part(self.job) else (self.job, self.index)
            return {job: {index: self.cluster[self.job][self.index]}}, job, index
        return self.cluster, self.job, self.index

    def server_def(self, threads: int | None = None) -> bytes:
        """Return the serialized `tensorflow.ServerDef` (tensorflow/core/protobuf/tensorflow_server.proto).

        Args:
            threads: its `inter_op_parallelism_threads`, by default `self.threads`.
        """
        threads = self.threads if threads is None else threads
        tasks, job, index = self.server
        cluster = b"".join(
            field(1, field(1, name) + b"".join(field(2, field(1, i) + field(2, addresses[i])) for i in addresses))
            for name, addresses in tasks.items()
        )
        config = field(4, field(5, threads)) if threads else b""  # default_session_config
        return field(1, cluster) + field(2, job) + field(3, index) + config + field(5, "grpc")


def check_config(
    cluster: TaskAddresses, job: str | None, index: str | int | None, *, elastic: bool = False
) -> TaskConfig:
    """Return the configuration of a task; arguments as of `TaskConfig`.

    Raises:
        ValueError: TensorFlow would refuse the cluster, or the task is not in the cluster.
    """
    for name in cluster:
        if not naming.is_job_name(name):
            raise ValueError(f'"{name}" is not a TensorFlow job name: letters, digits and "_", starting with a letter')
    if job is None or index is None:
        raise ValueError("--job-name and --task-index must both be given: which task of the cluster is this one?")
    if job not in cluster:
        raise ValueError(f'the cluster has no job "{job}"; it has {", ".join(cluster)}')
    if not str(index).isdecimal() or int(index) not in cluster[job]:
        raise ValueError(f'job "{job}" has no task {index}; it has {", ".join(map(str, cluster[job]))}')
    return TaskConfig(cluster, job, int(index), elastic=elastic)


def parse_cluster(text: str) -> TaskAddresses:
    """Read a ClusterSpec from JSON, or from the form that `grpc_tensorflow_server` took.

    Raises:
        ValueError: the text is neither.
    """
    if not text.lstrip().startswith("{"):
        return _old_form(text)
    try:
        jobs = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the cluster is not JSON: {error}") from error
    if not jobs:
        raise ValueError("the cluster has no jobs")
    return {job: _addresses(job, tasks) for job, tasks in jobs.items()}


def _old_form(text: str) -> TaskAddresses:
    cluster: dict[str, dict[int, str]] = {}
    for part in text.split(","):
        job, bar, hosts = part.partition("|")
        if not bar or not hosts:
            raise ValueError(f'"{part}" in the cluster is not JOB|HOST:PORT;HOST:PORT')
        if job in cluster:
            raise ValueError(f'job "{job}" stands twice in the cluster')
        cluster[job] = _addresses(job, hosts.split(";"))
    return cluster


def _addresses(job: str, tasks: object) -> dict[int, str]:
    """Return a job's addresses by index, from a list or from a sparse map of index → address."""
    if isinstance(tasks, list):
        pairs = list(enumerate(tasks))
    elif isinstance(tasks, dict) and all(str(index).isdecimal() for index in tasks):
        pairs = [(int(index), address) for index, address in tasks.items()]
    else:
        raise ValueError(f'the tasks of job "{job}" are neither a list of addresses nor a map of index to address')
    for _, address in pairs:
        host, _, port = str(address).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f'"{address}" in job "{job}" is not HOST:PORT')
    return dict(pairs)


def parse_tf_config(text: str) -> tuple[TaskAddresses, str | None, str | int | None]:
    """Read TF_CONFIG: the cluster, and the job and index of this task, if given.

    Raises:
        ValueError: the text is malformed.
    """
    try:
        config = json.loads(text)
        cluster, task = config["cluster"].items(), config.get("task", {})
        return {job: _addresses(job, tasks) for job, tasks in cluster}, task.get("type"), task.get("index")
    except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f'TF_CONFIG is not {{"cluster": …, "task": {{"type": …, "index": …}}}}: {error!r}') from error


def derive_cluster(environment: Mapping[str, str]) -> TaskAddresses:
    """Return the cluster as this process sees it: the jobs that take part in the training, and the task's own job."""
    dispatcher = environment.get("TFK8S_DATA_SERVICE", "").removeprefix("grpc://")
    own = environment.get("TFK8S_JOB")
    return {
        job: addresses
        for job, addresses in derive_tasks(environment).items()
        if job == own or roles.takes_part(job, is_data=addresses.get(0) == dispatcher)
    }


def derive_tasks(environment: Mapping[str, str]) -> TaskAddresses:
    """Return all tasks from their compact form: `TFK8S_JOBS=chief=1,ps=2:2300` and two more variables.

    No pod carries all addresses: a variable of about 2,000 addresses (128 KiB) stops working, and a thousand pods with
    such a variable are a burden to the API server.
    """
    cluster: dict[str, dict[int, str]] = {}
    name, namespace = environment["TFK8S_NAME"], environment["TFK8S_NAMESPACE"]
    for job, size in compact.parse_jobs(environment["TFK8S_JOBS"], int(environment["TFK8S_PORT"])).items():
        cluster[job] = {i: naming.pod_address(name, namespace, job, i, size.port) for i in range(size.tasks)}
    return cluster


def derive_elastic(environment: Mapping[str, str]) -> TaskConfig:
    """Return the task of a pod that knows no other jobs, with the first task of its own job."""
    name, namespace, job = (environment[f"TFK8S_{word}"] for word in ("NAME", "NAMESPACE", "JOB"))
    index, port = int(environment["TFK8S_INDEX"]), int(environment["TFK8S_PORT"])
    tasks = {i: naming.pod_address(name, namespace, job, i, port) for i in (0, index)}
    return TaskConfig({job: tasks}, job, index, elastic=True)


def lists(cluster: TaskAddresses) -> dict[str, list[str]]:
    """Return the addresses of each job's tasks as lists, for a cluster without gaps."""
    return {job: list(tasks.values()) for job, tasks in cluster.items()}


def listening_line(config: TaskConfig, version: str, devices: str) -> str:
    """Return the line of a server's log with its name, its port and its devices, once the server listens."""
    size = f" of {config.size} tasks" if config.size > 1 else " alone"
    return (
        f"tfk8s: {config.name}{'' if config.elastic else size}{_LISTENS}{config.port}: TensorFlow {version}, {devices}"
    )


def is_listening_line(line: str) -> bool:
    """Return whether a line of a log is a `listening_line`."""
    return line.startswith("tfk8s: ") and _LISTENS in line
