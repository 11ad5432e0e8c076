"""The status of clusters: clusters from their StatefulSets, tasks from their pods, reasons from events and logs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tfk8s import concurrency
from tfk8s.backends.kubernetes import containers, lifetime, pod_events, pod_status, script_status
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Query
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.nodes.shortages import requested
from tfk8s.core import compact, naming
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.errors import NoSuchCluster, Tfk8sError, there_are
from tfk8s.render import manifests, script_job
from tfk8s.render.pods import Object
from tfk8s.task.config import is_listening_line

_MAX_LOGS = 3  # of crashed tasks, for one status
_MAX_LISTENING_CHECKS = 8  # for one status, whose cost then does not grow with the cluster


class Reader(Protocol):
    """Reads from an API server, as `client.Client` does."""

    context: str
    namespace: str

    def get(self, path: str, query: Query | None = None) -> Object:
        """Return an object, or a list of them."""
        ...

    def text(self, path: str, query: Query | None = None) -> str:
        """Return a text, such as a log."""
        ...


IsListening = Callable[[Reader, Object], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedCluster:
    """A cluster as its StatefulSets describe it.

    Attributes:
        name, namespace: of the cluster.
        sets: its StatefulSets, by the job's DNS name.
        jobs: number of tasks and port of each job, the master's first.
        required_gpus: the number of GPUs that TensorFlow must see in a task, by the job's DNS name.
    """

    name: str
    namespace: str
    sets: Mapping[str, Object]
    jobs: Mapping[str, tuple[int, int]]
    required_gpus: Mapping[str, int] = field(default_factory=dict)

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

    def address(self, task: Task) -> str:
        """Return the address where a task listens."""
        return naming.pod_address(self.name, self.namespace, task.job, task.index, self.port(task))

    def port(self, task: Task) -> int:
        """Return the port where a task listens."""
        return self.jobs[task.job][1]

    def set_of(self, job: str) -> Object | None:
        """Return a job's StatefulSet."""
        return self.sets.get(naming.dns_label(job))


def find(client: Reader, namespace: str, name: str) -> DeployedCluster:
    """Return the cluster of that name.

    Raises:
        NoSuchCluster: no cluster has that name and StatefulSets.
    """
    stateful_sets = client.get(paths.collection("StatefulSet", namespace), paths.of_cluster(name))["items"]
    if not stateful_sets:
        raise no_such_cluster(client, namespace, name)
    return describe(stateful_sets)


def describe(sets: Sequence[Object]) -> DeployedCluster:
    """Return the cluster that has these StatefulSets."""
    metadata, environment = sets[0]["metadata"], containers.template_variables(sets[0])
    by_job = {item["metadata"]["labels"][manifests.COMPONENT]: item for item in sets}
    return DeployedCluster(
        name=metadata["labels"][manifests.INSTANCE],
        namespace=metadata["namespace"],
        sets=by_job,
        required_gpus={
            job: int(containers.template_variables(item).get("TFK8S_GPUS", "0")) for job, item in by_job.items()
        },
        jobs=compact.parse_jobs(environment["TFK8S_JOBS"], int(environment["TFK8S_PORT"])),
    )


def no_such_cluster(client: Reader, namespace: str, name: str) -> NoSuchCluster:
    """Return the error for a name that no cluster in the namespace has. It names a namespace that has the cluster."""
    keys = sorted(set(map(_key, _list_sets(client, namespace))))
    elsewhere = [other for cluster, other in keys if cluster == name]
    here = [cluster for cluster, other in keys if other == namespace]
    removed = lifetime.why_removed(client, namespace, name)
    return NoSuchCluster(
        f'there is no cluster "{name}" in namespace "{namespace}" of context "{client.context}"; '
        + (f"tfk8s removed it {removed}" if removed else there_are(here, "cluster")),
        help=f"it is in namespace {elsewhere[0]}: add --namespace {elsewhere[0]}"
        if elsewhere
        else "`tfk8s up FILE` makes one",
    )


def clusters(client: Reader, namespace: str | None) -> list[ClusterStatus]:
    """Return the clusters of a namespace or, with None, of all namespaces that the user may read."""
    stateful_sets = _list_sets(client, client.namespace) if namespace is None else _list_sets_in(client, namespace)
    keys = sorted(set(map(_key, stateful_sets)))
    return [read(client, describe([item for item in stateful_sets if _key(item) == key])) for key in keys]


def _key(stateful_set: Object) -> tuple[str, str]:
    """Return the name and the namespace of a StatefulSet's cluster."""
    metadata = stateful_set["metadata"]
    return metadata["labels"][manifests.INSTANCE], metadata["namespace"]


def _list_sets(client: Reader, namespace: str) -> list[Object]:
    """Return the StatefulSets of all clusters, or those of one namespace where the user may list no more."""
    try:
        return _list_sets_in(client, None)
    except ApiError as error:
        if error.code != 403:
            raise
    return _list_sets_in(client, namespace)


def _list_sets_in(client: Reader, namespace: str | None) -> list[Object]:
    query = paths.labelled({manifests.NAME: "tfk8s"})
    stateful_sets: list[Object] = client.get(paths.collection("StatefulSet", namespace), query)["items"]
    return stateful_sets


def is_listening(client: Reader, pod: Object) -> bool:
    """Return whether the beginning of a pod's log says that the server listens."""
    try:
        text = client.text(log_path(pod), {"limitBytes": 1 << 16})
    except Tfk8sError:
        return False
    return any(map(is_listening_line, text.splitlines()))


def log_path(pod: Object) -> str:
    """Return the path of a pod's log."""
    return paths.container(pod["metadata"]["namespace"], pod["metadata"]["name"], containers.spec(pod)["name"], "log")


def read(client: Reader, cluster: DeployedCluster, is_listening: IsListening = is_listening) -> ClusterStatus:
    """Return the status of a cluster; call `is_listening` for started servers that kubelet has not probed yet."""
    pods = client.get(paths.collection("Pod", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    by_task = {task: by_name.get(naming.pod(cluster.name, task.job, task.index)) for task in cluster.tasks}
    jobs = client.get(paths.collection("Job", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    scripts = _scripts(jobs, pods)
    keepers = lifetime.limit_keepers(jobs, pods)
    needs_events = any(map(_needs_events, (*by_task.values(), *(pod for _, pod in [*scripts, *keepers]))))
    master = cluster.set_of(cluster.master.job)
    events = read_events(client, cluster.namespace) if needs_events else {}
    last_lines = _last_lines(client, [pod for pod in by_task.values() if pod and pod_status.is_explained_by_log(pod)])
    tasks = [_task(cluster, task, pod, events, last_lines) for task, pod in by_task.items()]
    return ClusterStatus(
        name=cluster.name,
        backend="kubernetes",
        location=f"context {client.context}, namespace {cluster.namespace}",
        target=cluster.target,
        master=cluster.master,
        tasks=tuple(_with_listening(client, tasks, by_task, is_listening)),
        created=min(pod_status.seconds(item["metadata"]["creationTimestamp"]) for item in cluster.sets.values()),
        reason=_why_hopeless(tasks, by_task),
        requests=requested(cluster.sets.values()),
        scripts=tuple(script_status.status(job, pod, pod_events.of(pod or job, events)) for job, pod in scripts),
        limits=lifetime.limits(jobs),
        limits_problem=lifetime.limits_problem(keepers, events),
        variables=script_job.own_variables(containers.template_variables(master) if master else {}),
    )


def _scripts(jobs: Sequence[Object], pods: Sequence[Object]) -> list[tuple[Object, Object | None]]:
    """Return the Jobs of a cluster's scripts, the latest first, each with its pod."""
    by_job = {pod["metadata"]["labels"].get(script_job.JOB_NAME): pod for pod in pods}
    scripts = [job for job in jobs if script_job.is_script(job)]
    scripts.sort(key=lambda job: str(job["metadata"]["creationTimestamp"]), reverse=True)
    return [(job, by_job.get(job["metadata"]["name"])) for job in scripts]


def _task(
    cluster: DeployedCluster, task: Task, pod: Object | None, events: pod_events.Events, last_lines: Mapping[str, str]
) -> TaskStatus:
    stateful_set = cluster.set_of(task.job)
    is_starting = False
    if not (source := pod or stateful_set):
        phase, reason = Phase.PENDING, "its StatefulSet is missing: `tfk8s up` creates it again"
    elif pod and stateful_set and pod_status.is_outdated(pod, stateful_set):
        phase, reason = Phase.PENDING, "waits for its restart with the new settings"
    else:
        found = pod_events.of(source, events)
        phase, reason = pod_status.phase_and_reason(task.job, pod, found)
        is_starting = pod_status.waits_for_node(pod, found)
    name = naming.pod(cluster.name, task.job, task.index)
    if reason and last_lines.get(name):
        reason += f": {last_lines[name]}"
    return TaskStatus(
        task=task,
        phase=phase,
        address=cluster.address(task),
        runs_on=pod_status.runs_on(pod) if pod else "",
        restarts=sum(item["restartCount"] for item in containers.statuses(pod)) if pod else 0,
        since=pod_status.since(pod) if pod else None,
        reason=reason,
        required_gpus=cluster.required_gpus.get(naming.dns_label(task.job), 0),
        node_is_starting=is_starting,
    )


def _why_hopeless(tasks: Sequence[TaskStatus], pods: Mapping[Task, Object | None]) -> str:
    """Return why a task can never start without another job file: it failed before it ran. Else return ""."""
    for task in tasks:
        if task.phase is Phase.FAILED and not ((pod := pods[task.task]) and pod_status.has_run(pod)):
            return f"{task.task} can't start: {task.reason}"
    return ""


def _with_listening(
    client: Reader, tasks: Sequence[TaskStatus], pods: Mapping[Task, Object | None], is_listening: IsListening
) -> list[TaskStatus]:
    """Return the tasks. Those whose servers listen are ready already; kubelet reports it a second later."""

    def is_ready(task: Task) -> bool:
        pod = pods[task]
        return pod is not None and pod_status.was_never_ready(pod) and is_listening(client, pod)

    starting = [task.task for task in tasks if task.phase is Phase.STARTING]
    if len(starting) > _MAX_LISTENING_CHECKS:
        return list(tasks)
    answers = concurrency.map_parallel(is_ready, starting, _MAX_LISTENING_CHECKS)
    ready = {task for task, answer in zip(starting, answers, strict=True) if answer}
    return [dataclasses.replace(task, phase=Phase.READY) if task.task in ready else task for task in tasks]


def _needs_events(pod: Object | None) -> bool:
    """Return whether only events can explain why a pod does not run."""
    if pod is None or pod_status.is_unscheduled(pod):
        return True
    waiting = (item["state"].get("waiting", {}) for item in containers.statuses(pod))
    return any(state.get("reason") in containers.STARTING for state in waiting)


def read_events(client: Reader, namespace: str) -> pod_events.Events:
    """Return the events that explain why the pods of a namespace wait."""
    return pod_events.group(client.get(paths.collection("Event", namespace), pod_events.QUERY)["items"], client.context)


def _last_lines(client: Reader, crashed: Sequence[Object]) -> dict[str, str]:
    """Return the last lines that the first few crashed pods wrote, by the pods' names."""
    lines = {}
    for pod in crashed[:_MAX_LOGS]:
        running = "waiting" not in containers.statuses(pod)[0]["state"]
        try:
            text = client.text(log_path(pod), {"tailLines": 5, "previous": not running})
        except ApiError:  # the container is gone, and its log with it
            continue
        lines[pod["metadata"]["name"]] = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    return lines
