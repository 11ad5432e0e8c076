"""What becomes of a cluster's tasks while a script runs, in Kubernetes' words: soon nothing else tells."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from tfk8s.backends.kubernetes import paths, pod_status, status
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.disruptions import why_removed
from tfk8s.backends.kubernetes.reflector import Change, Reflector, Watcher
from tfk8s.backends.kubernetes.status import DeployedCluster
from tfk8s.core import naming
from tfk8s.core.spec import Task
from tfk8s.render import manifests
from tfk8s.render.pods import Object
from tfk8s.sessions.task_monitor import SILENCE

_KUBELET_SECONDS = 2.5  # until kubelet has told of a container's end
_LATELY_SECONDS = 20.0


class TaskEndWatcher(Watcher):
    """The ends of tasks from its creation to its `with`'s end: killed containers, pods deleted, evicted, preempted.

    Who may not watch learns what still stands in the pods.
    """

    def __init__(self, client: Client, cluster: DeployedCluster) -> None:
        query = paths.of_cluster(cluster.name)
        query["labelSelector"] += f",{manifests.COMPONENT}!={manifests.SCRIPT}"
        watch = Reflector(client, paths.collection("Pod", cluster.namespace), query)
        self._tasks = {naming.pod(cluster.name, task.job, task.index): task for task in cluster.tasks}
        self._ends = {end for pod in watch.begin() for end in _ends(pod)}
        self._client, self._cluster = client, cluster
        self._removed: set[str] = set()  # pods, by uid
        self._known: dict[Task, str] = {}
        self._changed = threading.Condition()
        super().__init__(watch)

    def known(self, wait: float) -> Mapping[Task, str]:
        """Return why tasks ended; waits so many seconds for the first: kubelet tells a moment later."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._known), wait)
            return dict(self._known)

    def why(self, task: Task, seen: str) -> str:
        """Return why a task was lost, given what was seen of that, or the latter; each end is told once.

        Raises:
            ClusterError: the API server does not answer, so that nothing is known of the task.
        """
        wait = 0.0 if seen == SILENCE else _KUBELET_SECONDS  # one that is silent has not ended
        with self._changed:
            self._changed.wait_for(lambda: task in self._known, wait)
            if why := self._known.pop(task, ""):
                return why
        (found,) = (one for one in status.status(self._client, self._cluster).tasks if one.task == task)
        return found.reason_since(time.time() - _LATELY_SECONDS) or seen

    def hear(self, change: Change) -> None:
        """Note a task's end."""
        task = self._tasks.get(change.now["metadata"]["name"])
        if task is not None and (why := self._why(task, change.now)):
            with self._changed:
                self._known[task] = why
                self._changed.notify_all()

    def _why(self, task: Task, pod: Object) -> str:
        uid = pod["metadata"].get("uid", "")
        if (removed := why_removed(task.job, pod)) and uid not in self._removed:
            self._removed.add(uid)
            return removed
        end = "" if removed else pod_status.new_end(task.job, pod, self._ends)
        self._ends.update(_ends(pod))
        return end


def _ends(pod: Object) -> list[str]:
    """Return the ids of a pod's containers that have ended."""
    return [
        state["terminated"]["containerID"]
        for container in pod["status"].get("containerStatuses", ())
        for state in (container["state"], container.get("lastState", {}))
        if "terminated" in state
    ]
