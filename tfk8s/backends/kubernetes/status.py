"""Reads what is there: clusters from their StatefulSets, tasks from their pods, reasons from events and logs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tfk8s import concurrency
from tfk8s.backends.kubernetes import paths, pod_status, script_status
from tfk8s.backends.kubernetes.client import Query
from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.core import naming
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.errors import NoSuchCluster, Tfk8sError, there_are
from tfk8s.render import manifests, script_job
from tfk8s.render.pods import Object
from tfk8s.task.config import is_listening_line

_MOST_LOGS = 3  # how many crashed tasks' logs are read for one look
_MOST_ASKED = 8


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


Listens = Callable[[Reader, Object], bool]  # whether the server in a pod that runs listens


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedCluster:
    """A cluster as its StatefulSets describe it.

    Attributes:
        name, namespace: which.
        sets: its StatefulSets, by the job's DNS name.
        jobs: number of tasks and port of each job, the master's first.
    """

    name: str
    namespace: str
    sets: Mapping[str, Object]
    jobs: Mapping[str, tuple[int, int]]

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
        """What sessions connect to."""
        return f"grpc://{self.address(self.master)}"

    def address(self, task: Task) -> str:
        """Return where a task listens."""
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
        NoSuchCluster: there is none, or none that has got as far as its StatefulSets.
    """
    found = client.get(paths.collection("StatefulSet", namespace), paths.of_cluster(name))["items"]
    if not found:
        raise no_such_cluster(client, namespace, name)
    return describe(found)


def describe(sets: Sequence[Object]) -> DeployedCluster:
    """Return the cluster that has these StatefulSets."""
    metadata = sets[0]["metadata"]
    environment = container_environment(sets[0])
    default = int(environment["TFK8S_PORT"])
    jobs = {}
    for part in environment["TFK8S_JOBS"].split(","):
        job, _, rest = part.partition("=")
        count, _, port = rest.partition(":")
        jobs[job] = (int(count), int(port or default))
    return DeployedCluster(
        name=metadata["labels"][manifests.INSTANCE],
        namespace=metadata["namespace"],
        sets={made["metadata"]["labels"][manifests.COMPONENT]: made for made in sets},
        jobs=jobs,
    )


def container_environment(made: Object) -> dict[str, str]:
    """Return the variables with fixed values of the containers that a StatefulSet makes."""
    variables = made["spec"]["template"]["spec"]["containers"][0]["env"]
    return {variable["name"]: variable["value"] for variable in variables if "value" in variable}


def no_such_cluster(client: Reader, namespace: str, name: str) -> NoSuchCluster:
    """Return the error for a name that no cluster has; says where one of that name is."""
    sets = _sets_everywhere(client, namespace)
    there = sorted({(made["metadata"]["namespace"], made["metadata"]["labels"][manifests.INSTANCE]) for made in sets})
    elsewhere = [space for space, cluster in there if cluster == name]
    here = [cluster for space, cluster in there if space == namespace]
    return NoSuchCluster(
        f'there is no cluster "{name}" in namespace "{namespace}" of context "{client.context}"; ' + there_are(here),
        help=f"it is in namespace {elsewhere[0]}: add --namespace {elsewhere[0]}"
        if elsewhere
        else "`tfk8s up FILE` makes one",
    )


def clusters(client: Reader, namespace: str | None) -> list[ClusterStatus]:
    """Return the clusters of a namespace or, with None, of all that the user may see."""
    query = paths.labelled({manifests.NAME: "tfk8s"})
    sets = _sets_everywhere(client, namespace or client.namespace) if namespace is None else _items(
        client.get(paths.collection("StatefulSet", namespace), query)
    )  # fmt: skip
    grouped: dict[tuple[str, str], list[Object]] = {}
    for made in sets:
        key = made["metadata"]["labels"][manifests.INSTANCE], made["metadata"]["namespace"]
        grouped.setdefault(key, []).append(made)
    return [read(client, describe(grouped[key])) for key in sorted(grouped)]


def _sets_everywhere(client: Reader, namespace: str) -> list[Object]:
    query = paths.labelled({manifests.NAME: "tfk8s"})
    try:
        return _items(client.get(paths.collection("StatefulSet", None), query))
    except ApiError as error:
        if error.code != 403:
            raise
    return _items(client.get(paths.collection("StatefulSet", namespace), query))


def is_listening(client: Reader, pod: Object) -> bool:
    """Return whether a server has written that it listens, in what its container's log begins with."""
    try:
        text = client.text(log_path(pod), {"limitBytes": 1 << 16})
    except Tfk8sError:
        return False
    return any(map(is_listening_line, text.splitlines()))


def log_path(pod: Object) -> str:
    """Return the path of a pod's log."""
    return paths.pod(pod["metadata"]["namespace"], pod["metadata"]["name"], "log")


def read(client: Reader, cluster: DeployedCluster, listens: Listens = is_listening) -> ClusterStatus:
    """Return what is there of a cluster now; `listens` is asked about those whose kubelet has not looked yet."""
    made = _items(client.get(paths.collection("Pod", cluster.namespace), paths.of_cluster(cluster.name)))
    by_name = {pod["metadata"]["name"]: pod for pod in made}
    looks = [(task, by_name.get(naming.pod(cluster.name, task.job, task.index))) for task in cluster.tasks]
    scripts = _scripts(client, cluster, made)
    unclear = any(_needs_events(pod) for pod in (*(pod for _, pod in looks), *(pod for _, pod in scripts)))
    complaints = _complaints(client, cluster.namespace) if unclear else {}
    explained = _logs_of_crashed(client, [pod for _, pod in looks if pod is not None and pod_status.crashed(pod)])
    created = min(pod_status.seconds(one["metadata"]["creationTimestamp"]) for one in cluster.sets.values())
    tasks = [_task(cluster, task, pod, complaints, explained) for task, pod in looks]
    return ClusterStatus(
        name=cluster.name,
        backend="kubernetes",
        location=f"context {client.context}, namespace {cluster.namespace}",
        target=cluster.target,
        master=cluster.master,
        tasks=tuple(_asked(client, tasks, dict(looks), listens)),
        created=created,
        reason=_hopeless(tasks, [pod for _, pod in looks]),
        scripts=tuple(
            script_status.status(job, pod, complaints.get((pod or job)["metadata"]["uid"], ())) for job, pod in scripts
        ),
    )


def _scripts(client: Reader, cluster: DeployedCluster, made: Sequence[Object]) -> list[tuple[Object, Object | None]]:
    """Return the Jobs of a cluster's scripts, the latest first, each with its pod."""
    by_job = {pod["metadata"]["labels"].get(script_job.JOB_NAME): pod for pod in made}
    jobs = _items(client.get(paths.collection("Job", cluster.namespace), paths.of_cluster(cluster.name)))
    jobs.sort(key=lambda job: str(job["metadata"]["creationTimestamp"]), reverse=True)
    return [(job, by_job.get(job["metadata"]["name"])) for job in jobs]


def _task(
    cluster: DeployedCluster,
    task: Task,
    pod: Object | None,
    complaints: Mapping[str, Sequence[str]],
    explained: Mapping[str, str],
) -> TaskStatus:
    about = pod or cluster.set_of(task.job)
    if about is None:
        phase, reason = Phase.PENDING, "its StatefulSet is missing: `tfk8s up` makes it again"
    else:
        phase, reason = pod_status.phase_and_reason(task.job, pod, complaints.get(about["metadata"]["uid"], ()))
    if pod and (made := cluster.set_of(task.job)) and pod_status.outdated(pod, made):
        phase, reason = Phase.PENDING, "is to be started anew, with what has changed"
    name = naming.pod(cluster.name, task.job, task.index)
    if reason and explained.get(name):
        reason += f": {explained[name]}"
    node = pod["spec"].get("nodeName") if pod else None
    return TaskStatus(
        task=task,
        phase=phase,
        address=cluster.address(task),
        runs_on=(f"{name} on {node}" if node else name) if pod else "",
        restarts=sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ())) if pod else 0,
        since=pod_status.since(pod) if pod else None,
        reason=reason,
    )


def _hopeless(tasks: Sequence[TaskStatus], made: Sequence[Object | None]) -> str:
    """Return why a task can never start, or "": it failed before it ran, and nothing but another job file helps."""
    for task, pod in zip(tasks, made, strict=True):
        if task.phase is Phase.FAILED and not (pod and pod_status.has_run(pod)):
            return f"{task.task} can't start: {task.reason}"
    return ""


def _asked(
    client: Reader, tasks: Sequence[TaskStatus], made: Mapping[Task, Object | None], listens: Listens
) -> list[TaskStatus]:
    """Return the tasks, after asking those that may have become ready: kubelet tells a second later.

    Where these are many it is left to kubelet, so that a look has a constant cost.
    """
    starting = [known.task for known in tasks if known.phase is Phase.STARTING]
    if len(starting) > _MOST_ASKED:
        return list(tasks)
    answers = concurrency.map_parallel(lambda task: _is_up(client, made[task], listens), starting, _MOST_ASKED)
    up = {task for task, answer in zip(starting, answers, strict=True) if answer}
    return [dataclasses.replace(known, phase=Phase.READY) if known.task in up else known for known in tasks]


def _is_up(client: Reader, pod: Object | None, listens: Listens) -> bool:
    return pod is not None and pod_status.was_never_ready(pod) and listens(client, pod)


def _needs_events(pod: Object | None) -> bool:
    """Return whether only events can say why a task does not run."""
    if pod is None:
        return True
    containers = pod["status"].get("containerStatuses", ())
    return any(one["state"].get("waiting", {}).get("reason") == "ContainerCreating" for one in containers)


def _complaints(client: Reader, namespace: str) -> dict[str, list[str]]:
    """Return the messages of all warnings in a namespace, by the object's uid, the latest last.

    Not those of the scheduler: a pod that waits for it says so itself, and any other has it behind it. Nor those of
    probes: a server that does not listen yet is no reason for anything.
    """
    query = {"fieldSelector": "type=Warning,reason!=FailedScheduling,reason!=Unhealthy"}
    events = _items(client.get(paths.collection("Event", namespace), query))
    found: dict[str, list[str]] = {}
    for event in sorted(events, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime"))):
        found.setdefault(event["involvedObject"].get("uid", ""), []).append(event.get("message", ""))
    return found


def _logs_of_crashed(client: Reader, crashed: Sequence[Object]) -> dict[str, str]:
    """Return the last line that each crashed pod wrote, by its name, for the first few."""
    lines = {}
    for pod in crashed[:_MOST_LOGS]:
        running = "waiting" not in pod["status"]["containerStatuses"][0]["state"]
        try:
            text = client.text(log_path(pod), {"tailLines": 5, "previous": not running})
        except ApiError:  # the container is gone, and its log with it
            continue
        lines[pod["metadata"]["name"]] = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    return lines


def _items(answer: Object) -> list[Object]:
    items: list[Object] = answer["items"]
    return items
