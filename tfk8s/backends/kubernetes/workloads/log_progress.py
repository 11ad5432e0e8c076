"""The progress of programs and scripts, from the logs of their pods. A pod has no right to write to its object."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from tfk8s import concurrency
from tfk8s.backends.kubernetes.api_server.client import Reader
from tfk8s.backends.kubernetes.pods import containers, pod_status
from tfk8s.core.progress import StepProgress, latest
from tfk8s.errors import Tfk8sError
from tfk8s.log import log
from tfk8s.render.pods import Object

MAX_LOGS = 8  # for one status, whose cost then does not grow with the cluster
READ_INTERVAL = 5.0  # for callers that poll
_TAIL = {"tailLines": 1000, "limitBytes": 1 << 20}

T = TypeVar("T")
ProgressByPod = Mapping[str, StepProgress]


def read(client: Reader, pods: Sequence[Object]) -> ProgressByPod:
    """Return the progress of pods that run programs and scripts, by their names. Only the first few logs are read.

    Args:
        pods: the pods, also those that do not run.
    """
    return read_logs(client, pods, latest, _TAIL)


def read_logs(
    client: Reader, pods: Sequence[Object], parse: Callable[[Sequence[str]], T | None], tail: Mapping[str, int]
) -> dict[str, T]:
    """Return what the logs of pods say, by the names of the pods. Only the first few logs are read.

    Args:
        pods: the pods, also those that do not run.
        parse: returns what the lines of a log say, or None.
        tail: the part of a log.
    """
    ready = _ready(pods)
    found = concurrency.map_parallel(lambda pod: parse(_lines(client, pod, tail)), list(ready.values()), MAX_LOGS)
    return {name: result for name, result in zip(ready, found, strict=True) if result}


def _ready(pods: Sequence[Object]) -> dict[str, Object]:
    """Return the first few pods that are ready, by their names. A log on a silent node can't be read."""
    ready = (pod for pod in pods if (pod_status.condition(pod, "Ready") or {}).get("status") == "True")
    return {pod["metadata"]["name"]: pod for pod in itertools.islice(ready, MAX_LOGS)}


def _lines(client: Reader, pod: Object, tail: Mapping[str, int]) -> list[str]:
    try:
        return client.text(containers.log_path(pod), tail).splitlines()
    except Tfk8sError:  # the pod is gone, or the user may not read logs
        return []


class RecentLogs(Generic[T]):
    """The contents of logs, for a caller that polls. A thread reads the logs, so that a slow kubelet delays nothing.

    Args:
        read_once: returns what the logs of pods say, by the names of the pods.
        clock: returns a time in seconds.
    """

    def __init__(
        self, read_once: Callable[[Reader, Sequence[Object]], Mapping[str, T]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._read_once, self._clock = read_once, clock
        self._next_read = -math.inf
        self._found: Mapping[str, T] = {}

    def read(self, client: Reader, pods: Sequence[Object]) -> Mapping[str, T]:
        """Return what was read last of pods that still run, and begin to read again if it is time."""
        if pods and self._clock() >= self._next_read:
            self._next_read = math.inf
            threading.Thread(target=self._read, args=(client, pods), name="tfk8s-progress", daemon=True).start()
        ready = _ready(pods)
        return {name: result for name, result in self._found.items() if name in ready}

    def _read(self, client: Reader, pods: Sequence[Object]) -> None:
        try:
            self._found = self._read_once(client, pods)
        except Exception as error:
            log.warning("logs could not be read: %s: %s", type(error).__name__, error)
        finally:
            self._next_read = self._clock() + READ_INTERVAL
