"""The progress of programs and scripts, from the logs of their pods. A pod has no right to write to its object."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from tfk8s import concurrency
from tfk8s.backends.kubernetes import containers, pod_status
from tfk8s.backends.kubernetes.api_server.client import Reader
from tfk8s.core.progress import StepProgress, latest
from tfk8s.errors import Tfk8sError
from tfk8s.render.pods import Object

MAX_LOGS = 8  # for one status, whose cost then does not grow with the cluster
READ_INTERVAL = 5.0  # for callers that poll
_TAIL = {"tailLines": 1000, "limitBytes": 1 << 20}

ProgressByPod = Mapping[str, StepProgress]


def read(client: Reader, pods: Sequence[Object]) -> ProgressByPod:
    """Return the progress of pods that run programs and scripts, by their names. Only the first few logs are read.

    Args:
        client: the API server.
        pods: the pods, also those that do not run.
    """
    ready = _ready(pods)
    found = concurrency.map_parallel(lambda pod: _last_progress(client, pod), list(ready.values()), MAX_LOGS)
    return {name: progress for name, progress in zip(ready, found, strict=True) if progress}


def _ready(pods: Sequence[Object]) -> dict[str, Object]:
    """Return the first few pods that are ready, by their names. A log on a silent node can't be read."""
    ready = (pod for pod in pods if (pod_status.condition(pod, "Ready") or {}).get("status") == "True")
    return {pod["metadata"]["name"]: pod for pod in itertools.islice(ready, MAX_LOGS)}


def _last_progress(client: Reader, pod: Object) -> StepProgress | None:
    try:
        text = client.text(containers.log_path(pod), _TAIL)
    except Tfk8sError:  # the pod is gone, or the user may not read logs
        return None
    return latest(text.splitlines())


class RecentProgress:
    """The progress of pods for a caller that polls. A thread reads the logs, so that a slow kubelet delays nothing.

    Args:
        clock: returns a time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_read = -math.inf
        self._found: ProgressByPod = {}

    def read(self, client: Reader, pods: Sequence[Object]) -> ProgressByPod:
        """Return what was read last of pods that still run, and begin to read again if it is time."""
        if pods and self._clock() >= self._next_read:
            self._next_read = math.inf
            threading.Thread(target=self._read, args=(client, pods), name="tfk8s-progress", daemon=True).start()
        ready = _ready(pods)
        return {name: progress for name, progress in self._found.items() if name in ready}

    def _read(self, client: Reader, pods: Sequence[Object]) -> None:
        self._found = read(client, pods)
        self._next_read = self._clock() + READ_INTERVAL
