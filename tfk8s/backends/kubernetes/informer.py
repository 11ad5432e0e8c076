"""A cached view of a cluster, kept current by watches, so that polling sends no requests; client-go's informer.

Without a cache, each poll lists everything. While a cluster starts, the polls would take more of a small machine than
its servers, and each poll would wait for a busy API server. The informer also follows the log of each server that
starts: the log tells that the server listens, a second before kubelet does.

It records why tasks end, too, because Kubernetes drops the reason when it replaces the pod.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Self

from tfk8s.backends.kubernetes import status
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client, Query, Reader, add_query
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.api_server.reflector import ObjectChange, Reflector
from tfk8s.backends.kubernetes.pods import containers, disruptions, pod_status
from tfk8s.backends.kubernetes.workloads import deployed, log_progress, warm_status
from tfk8s.backends.kubernetes.workloads.log_progress import RecentLogs
from tfk8s.core import naming
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import Tfk8sError
from tfk8s.render import script_job
from tfk8s.render.pods import Object
from tfk8s.sessions.task_monitor import SILENCE
from tfk8s.sessions.timing import TIMING
from tfk8s.task.config import is_listening_line

MAX_END_AGE = 20.0  # an older end is not the reason for a loss that is seen now
RELIST_INTERVAL = 0.25  # for users who may list, but not watch
_REFUSAL_INTERVAL = 10.0  # between two requests for a list that the user may not read, or that the server lacks

OnChange = Callable[[ObjectChange], None]


class ObjectCache:
    """The objects that a query selects: listed at first, and from `start` on kept current by a watch on a thread.

    Args:
        client, path, query: as for a `Reflector`.
        on_change: called with each change after the first list, on the thread that learns of it.
    """

    def __init__(self, client: Client, path: str, query: Query, on_change: OnChange = lambda _: None) -> None:
        self._reflector = Reflector(client, path, query)
        self._on_change = on_change
        self._closed, self._may_watch = threading.Event(), True
        self._reflector.relist()
        self._listed_at = time.monotonic()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, name="tfk8s-watch", daemon=True).start()

    def close(self) -> None:
        """Let the thread end, which it does within seconds, together with its stream."""
        self._closed.set()

    def items(self) -> list[Object]:
        """Return the objects.

        Raises:
            BackendUnreachable: the API server does not answer.
        """
        self._reflector.require_connection()
        if not self._may_watch and time.monotonic() - self._listed_at >= RELIST_INTERVAL:
            for change in self._reflector.relist():
                self._on_change(change)
            self._listed_at = time.monotonic()
        return list(self._reflector.objects.values())

    def _watch(self) -> None:
        try:
            with contextlib.closing(self._reflector.changes(lambda: not self._closed.is_set())) as changes:
                for change in changes:
                    if self._closed.is_set():
                        return
                    self._on_change(change)
        except ApiError:  # the user may list, but not watch
            pass
        finally:
            self._may_watch = False  # also after an error of tfk8s' own: readers would else wait for ever


class Informer:
    """Observes a cluster, in a `with`: its status, the changes of its pods, and why its tasks ended.

    It reads from the API server as `Client` does. A list that was asked for once is watched from then on.

    Args:
        namespace, name: the cluster's.
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self.client, self.context, self.namespace = client, client.context, namespace
        self._name = name
        self._pods_query = paths.collection("Pod", namespace), paths.of_cluster(name)
        self._caches: dict[str, ObjectCache] = {}
        self._refusals: dict[str, tuple[float, ApiError]] = {}  # the last one of each list, and its time
        self._is_listening: dict[tuple[str, int], bool] = {}
        self._progress = RecentLogs(log_progress.read)
        self._warm_scripts = RecentLogs(warm_status.read_scripts)
        self._closed = threading.Event()
        self._pods: dict[str, ObjectChange] = {}  # the last change of each, by uid
        self._known_ends: set[str] = set()  # ids of containers, and uids of pods that were deleted or evicted
        self._ends: dict[str, str] = {}  # by the pod's name
        self._ended = threading.Condition()

    def __enter__(self) -> Self:
        path, query = self._pods_query
        cache = self._caches[add_query(path, query)] = ObjectCache(self.client, path, query, self._take)
        for pod in cache.items():
            self._pods[pod["metadata"]["uid"]] = ObjectChange(deleted=False, object=pod)
            self._known_ends.update(_container_ends(pod))
        cache.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for cache in self._caches.values():
            cache.close()

    def status(self) -> ClusterStatus:
        """Return the cluster's status, which is at most a moment old.

        Raises:
            NoSuchCluster: the cluster does not exist.
            ApiError, BackendUnreachable: as the client raises them.
        """
        cluster = deployed.find(self, self.namespace, self._name)
        return status.read(self, cluster, self.is_listening, self._progress.read, self._warm_scripts.read)

    def why_lost(self, task: Task, symptom: str) -> str:
        """Return why a task was lost, or the symptom where nothing is known. Each end is returned once.

        Raises:
            ClusterError: the API server does not answer, so that nothing is known of the task.
        """
        pod = naming.pod(self._name, task.job, task.index)
        now, is_silent = time.time(), symptom == SILENCE
        timeout = 0.0 if is_silent else TIMING.kubelet_delay  # a silent server has not ended
        with self._ended:
            self._ended.wait_for(lambda: pod in self._ends, timeout)
            if reason := self._ends.pop(pod, ""):
                return reason
        cluster = deployed.find(self.client, self.namespace, self._name)
        (found,) = (found for found in status.read(self.client, cluster).tasks if found.task == task)
        return found.reason_since(now if is_silent else now - MAX_END_AGE) or symptom

    def ends(self, timeout: float) -> Mapping[str, str]:
        """Return why pods of tasks ended, by their names; wait for the first end until the timeout."""
        with self._ended:
            self._ended.wait_for(lambda: bool(self._ends), timeout)
            return dict(self._ends)

    def last_change(self, job: str) -> ObjectChange | None:
        """Return the last change of a Job's pod, also after the pod's end; None before the Job has a pod.

        Raises:
            ApiError, BackendUnreachable: as for `get`.
        """
        self.get(*self._pods_query)
        changes = reversed(list(self._pods.values()))
        return next((pod for pod in changes if pod.object["metadata"]["labels"].get(script_job.JOB_NAME) == job), None)

    def get(self, path: str, query: Query | None = None) -> Object:
        """Return a list of objects, from the cache.

        Raises:
            ApiError, BackendUnreachable: as the client raises them; also while the API server is silent.
        """
        url = add_query(path, query)
        if url not in self._caches:
            refused_at, refusal = self._refusals.get(url, (-_REFUSAL_INTERVAL, None))
            if refusal and time.monotonic() - refused_at < _REFUSAL_INTERVAL:
                raise refusal
            try:
                cache = ObjectCache(self.client, path, query or {})
            except ApiError as error:
                if error.code in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                    self._refusals[url] = time.monotonic(), error
                raise
            cache.start()
            self._caches[url] = cache
        return {"items": self._caches[url].items()}

    def text(self, path: str, query: Query | None = None) -> str:
        """Return a text, such as a log."""
        return self.client.text(path, query)

    def is_listening(self, _: Reader, pod: Object) -> bool:
        """Return whether the server in a pod has logged that it listens."""
        run = pod["metadata"]["uid"], containers.statuses(pod)[0]["restartCount"]
        if run not in self._is_listening:
            self._is_listening[run] = False
            threading.Thread(target=self._follow_log, args=(run, pod), name="tfk8s-log", daemon=True).start()
        return self._is_listening.get(run, False)

    def _follow_log(self, run: tuple[str, int], pod: Object) -> None:
        path = containers.log_path(pod)
        with contextlib.suppress(Tfk8sError), self.client.lines(path, {"follow": True}) as lines:
            for line in lines:
                if is_listening_line(line):
                    self._is_listening[run] = True
                if self._is_listening[run] or self._closed.is_set():
                    return
        del self._is_listening[run]  # the stream ended: the next poll opens another

    def _take(self, change: ObjectChange) -> None:
        """Note the change of a pod, and the end of its task."""
        pod, uid = change.object, change.object["metadata"]["uid"]
        self._pods[uid] = change
        if not (job := _job(pod)):
            return
        if removal := disruptions.why_removed(job, pod):
            ends = {uid: removal}
        else:
            ends = {id_: pod_status.why_ended(job, pod, end) for id_, end in _container_ends(pod).items()}
        with self._ended:
            for end in ends.keys() - self._known_ends:
                self._ends[pod["metadata"]["name"]] = ends[end]
            self._known_ends.update(ends)
            self._ended.notify_all()


def _container_ends(pod: Object) -> dict[str, Object]:
    """Return the last end of a pod's container, by the container's id; nothing before an end."""
    end = containers.last_end(pod)
    return {end.get("containerID", pod["metadata"]["uid"]): end} if end else {}


def _job(pod: Object) -> str:
    """Return the name of a task's job; "" for a script's pod."""
    containers = (item for item in pod["spec"]["containers"] if item["name"] != naming.SCRIPT_CONTAINER)
    variables = (variable for container in containers for variable in container.get("env", ()))
    return next((str(variable["value"]) for variable in variables if variable["name"] == "TFK8S_JOB"), "")
