"""Copies the files that programs in pods leave when they end, by a stream to each pod.

The pods wait for this process, because the variables of `ProgramFiles.environment` say so.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from tfk8s.backends import downloads
from tfk8s.backends.kubernetes.api_server import access_review, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.scripts import script_pod
from tfk8s.backends.kubernetes.scripts.stream import arriving_files
from tfk8s.backends.kubernetes.scripts.stream.script_stream import ScriptStream, Unusable, reason
from tfk8s.backends.kubernetes.workloads import task_pods
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core import naming
from tfk8s.core.script import Download
from tfk8s.core.spec import Task
from tfk8s.errors import BackendUnreachable, ClusterError, NoSuchCluster, Tfk8sError
from tfk8s.render.pods import Object
from tfk8s.task.files import received
from tfk8s.task.stream import channel

_CLOSE_TIMEOUT = 1.0
INTERVAL = 1.0  # between two looks for the pod of a program
_NOT_ENDED = "its program did not end by itself"


def require_connections(client: Client, namespace: str) -> None:
    """Check that this user may connect to pods.

    Raises:
        ClusterError: the user may not.
    """
    if not access_review.may_connect(client, namespace):
        raise ClusterError(
            "files of programs can't be copied: you may not connect to pods (pods/portforward) in namespace "
            f"{namespace}",
            help="leave out --get, and let the programs write to a volume of the job file",
        )


class ProgramFiles:
    """The files of a run's programs, which threads copy as soon as a program has ended, in a `with`.

    Args:
        client: the API server.
        find: returns the cluster, from its start on.
        wanted: the files by task.

    Attributes:
        environment: the variables that let the pods wait for this process, by job.
    """

    def __init__(
        self, client: Client, find: Callable[[], DeployedCluster], wanted: Mapping[Task, Sequence[Download]]
    ) -> None:
        pods = _ListedPods(client, find)
        self._parts = [_TaskFiles(client, pods, task, files) for task, files in wanted.items()]
        asked: dict[str, dict[int, list[str]]] = {}
        for task, files in wanted.items():
            asked.setdefault(task.job, {})[task.index] = [file.path for file in files]
        self.environment: Mapping[str, Mapping[str, str]] = {
            job: {naming.FILES_VARIABLE: json.dumps(of_tasks)} for job, of_tasks in asked.items()
        }

    def __enter__(self) -> ProgramFiles:
        for part in self._parts:
            part.start()
        return self

    def __exit__(self, *_: object) -> None:
        for part in self._parts:
            part.stop()
        for part in self._parts:
            part.close()

    def finish(self) -> list[str]:
        """Wait for the copies of programs that have ended; return what was not copied, with the reasons."""
        return [f"{part.task}: {problem}" for part in self._parts for problem in part.finish()]


class _ListedPods:
    """The pods of a cluster, which all threads list together, once a second."""

    def __init__(self, client: Client, find: Callable[[], DeployedCluster]) -> None:
        self._client, self._find = client, find
        self._lock, self._listed_at = threading.Lock(), -math.inf
        self._found: Mapping[Task, Object | None] = {}

    def running(self, task: Task) -> Object | None:
        """Return a task's pod if it runs."""
        with self._lock:
            if time.monotonic() - self._listed_at >= INTERVAL:
                self._listed_at, self._found = time.monotonic(), {}
                cluster = self._find()
                query = paths.of_cluster(cluster.name)
                pods = self._client.get(paths.collection("Pod", cluster.namespace), query)["items"]
                self._found = task_pods.by_task(cluster, pods)
            pod = self._found.get(task)
        return pod if pod and pod["status"].get("phase") == "Running" else None


class _TaskFiles:
    """The files of one program, from whichever pod the program ends in."""

    def __init__(self, client: Client, pods: _ListedPods, task: Task, wanted: Sequence[Download]) -> None:
        self.task = task
        self._client, self._pods, self._wanted = client, pods, wanted
        self._stream: _ProgramStream | None = None
        self._problems: list[str] | None = None
        self._failure = ""
        self._is_over = threading.Event()  # the run: no other pod will run the program
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=f"tfk8s-{task}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped = True
        self._is_over.set()
        if (stream := self._stream) is not None:
            stream.stop()

    def close(self) -> None:
        self.stop()
        self._thread.join(_CLOSE_TIMEOUT)
        if not self._thread.is_alive() and self._stream is not None:
            self._stream.close()
            self._stream = None

    def finish(self) -> list[str]:
        self._is_over.set()
        if (stream := self._stream) is not None and stream.has_ended:
            self._thread.join()  # a copy has limits of its own
        self.close()
        if self._problems is None:
            return [f"its files were not copied: {self._failure or _NOT_ENDED}"]
        return self._problems

    def _run(self) -> None:
        while self._problems is None and not self._is_over.is_set():
            try:
                if pod := self._pods.running(self.task):
                    self._problems = self._copy(pod)
            except received.BadArchive as error:
                self._problems = [downloads.failure(error)]
            except (NoSuchCluster, BackendUnreachable):  # it begins, or the server may recover
                pass
            except (Tfk8sError, Unusable) as error:  # another pod may run the program again
                if not self._is_stopped:
                    self._failure = reason(error)
            self._is_over.wait(INTERVAL)

    def _copy(self, pod: Object) -> list[str]:
        if self._stream is None or self._stream.uid != pod["metadata"]["uid"]:
            if self._stream is not None:
                self._stream.close()
            self._stream = _ProgramStream(self._client, pod)
        return self._stream.copy(self._wanted)


class _ProgramStream(ScriptStream):
    """The stream to the pod of a program, which sends the end and the files alone."""

    _subject = "the program"
    _resume_timeout = channel.CLIENT_TIMEOUT
    _gone = "its pod takes this command's connection no more"
    _lost, _refused = "which goes on", "where the program goes on"
    _help = _without = None

    @property
    def uid(self) -> str:
        """The identity of the pod."""
        return str(self._pod["metadata"]["uid"])

    @property
    def has_ended(self) -> bool:
        """True if the program has ended for good."""
        return self._end is not None

    def close(self) -> None:
        """End the stream, which no thread serves any more."""
        self._close()

    def copy(self, wanted: Sequence[Download]) -> list[str]:
        """Wait for the end of the program, and copy files; return what was not copied, with the reasons.

        Raises:
            Unusable, ClusterError, ScriptLost: the stream broke off. Nothing was changed.
        """
        try:
            if not self._is_known:
                self._connect()
            while self._end is None:
                self._reconnected_step()
            if not self._end["files"]:
                raise ClusterError("its pod ends")
            return arriving_files.receive(self, wanted)
        finally:
            self._channel.detach()

    def _require_running(self) -> None:
        metadata = self._pod["metadata"]
        with contextlib.suppress(BackendUnreachable):
            found = self._client.find(paths.pod(metadata["namespace"], metadata["name"]))
            is_deleted = found is None or found["metadata"]["uid"] != metadata["uid"]
            pod = self._pod if found is None or is_deleted else found
            state = "the copy broke off" if self.has_ended else _NOT_ENDED
            script_pod.require_kept(pod, state, is_deleted, subject=self._subject, advice=None)
            if pod["status"].get("phase") != "Running":
                raise ClusterError("its pod has ended")
