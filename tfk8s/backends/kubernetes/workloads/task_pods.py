"""The pods of tasks. The name of a program's pod ends in five random characters, which the Job controller chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Reader
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.backends.kubernetes.workloads import program_status
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core import naming
from tfk8s.core.spec import Task
from tfk8s.render import program_job, script_job
from tfk8s.render.pods import Object


def by_task(cluster: DeployedCluster, pods: Iterable[Object]) -> dict[Task, Object | None]:
    """Return the pod of each task, from the pods of the cluster. Of several pods of a program, the newest counts."""
    found: dict[str, Object] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
        found[stable_name(pod)] = pod
    return {task: found.get(naming.pod(cluster.name, task.job, task.index)) for task in cluster.tasks}


def stable_name(pod: Object) -> str:
    """Return the name that a task's pod has, or would have in a StatefulSet. It is the pod's host name."""
    labels = pod["metadata"].get("labels", {})
    if program_job.POD_INDEX in labels:
        return f"{labels[script_job.JOB_NAME]}-{labels[program_job.POD_INDEX]}"
    return str(pod["metadata"]["name"])


class LoggedPod:
    """The pod of a task whose log is followed. A program's next pod has another name.

    Args:
        cluster: the task's.

    Attributes:
        task: the task.
    """

    def __init__(self, client: Reader, cluster: DeployedCluster, task: Task) -> None:
        self._client, self._cluster, self.task = client, cluster, task

    def name(self) -> str:
        """Return the name of the pod now."""
        return names(self._client, self._cluster, [self.task])[self.task]

    def may_write(self) -> bool:
        """Return whether the task may write to its log: its server's cluster exists, or its program may run."""
        kind = "Job" if self._cluster.program_job(self.task.job) else "StatefulSet"
        items = self._get(kind)
        if kind == "StatefulSet":
            return bool(items)
        name = naming.stateful_set(self._cluster.name, self.task.job)
        job = next((item for item in items if item["metadata"]["name"] == name), None)
        if job is None or program_status.end(job) is not None:
            return False
        pod = by_task(self._cluster, self._get("Pod"))[self.task]
        return program_status.read(job, self.task, pod, PodEvents()).exit_code is None

    def _get(self, kind: str) -> list[Object]:
        query = paths.of_cluster(self._cluster.name)
        items: list[Object] = self._client.get(paths.collection(kind, self._cluster.namespace), query)["items"]
        return items


def names(client: Reader, cluster: DeployedCluster, tasks: Sequence[Task]) -> Mapping[Task, str]:
    """Return the names of tasks' pods. Without a pod, the name is one that no pod has."""
    named = {task: naming.pod(cluster.name, task.job, task.index) for task in tasks}
    if not any(cluster.program_job(task.job) for task in tasks):
        return named
    pods = client.get(paths.collection("Pod", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    found = by_task(cluster, pods)
    return {task: pod["metadata"]["name"] if (pod := found[task]) else name for task, name in named.items()}
