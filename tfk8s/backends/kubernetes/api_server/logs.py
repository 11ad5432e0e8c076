"""Reads and follows the logs of tasks, across restarts of their containers."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import errors, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.core import naming
from tfk8s.core.script import LogLine, LogOptions
from tfk8s.core.spec import Task
from tfk8s.errors import BackendUnreachable, Tfk8sError

_OUTAGE_TIMEOUT = 300.0  # the longest outage of the API server that `follow` survives
_NO_CONTAINER = (400, 404)  # the codes when no container has started, or the pod does not exist

Pods = Sequence[tuple[Task, str]]


def read(client: Client, namespace: str, pods: Pods, options: LogOptions) -> Iterator[LogLine]:
    """Yield the chosen lines of each task."""
    for task, pod in pods:
        for line in read_pod(client, namespace, pod, options):
            yield LogLine(task=task, text=line)


def read_pod(
    client: Client, namespace: str, pod: str, options: LogOptions, container: str = naming.SERVER_CONTAINER
) -> list[str]:
    """Return the chosen lines of one container; none if it has not started or restarted, or does not exist."""
    query = {**_query(options), "previous": options.previous, "timestamps": options.timestamps}
    with errors.suppress(*_NO_CONTAINER):
        text = client.text(paths.container(namespace, pod, container, "log"), query)
        # `splitlines` would also split at `naming.SCRIPT_MARK`.
        return text.removesuffix("\n").split("\n") if text else []
    return []


class FollowedPod(Protocol):
    """The pod of a task whose log is followed.

    Attributes:
        task: the task.
    """

    task: Task

    def name(self) -> str:
        """Return the name of the pod now; another pod may replace it."""
        ...

    def may_write(self) -> bool:
        """Return whether the task may still write to its log."""
        ...


def follow(client: Client, namespace: str, pods: Sequence[FollowedPod], options: LogOptions) -> Iterator[LogLine]:
    """Yield the lines of all tasks as they are written, until no pod may write."""
    lines: queue.SimpleQueue[LogLine | Tfk8sError | None] = queue.SimpleQueue()
    for pod in pods:
        reader = Follower(client, namespace, pod.name, options, pod.may_write)
        name = f"tfk8s-log-{pod.task}"
        threading.Thread(target=_forward, args=(reader, pod.task, lines), name=name, daemon=True).start()
    open_logs = len(pods)
    while open_logs:
        item = lines.get()
        if item is None:
            open_logs -= 1
        elif isinstance(item, Tfk8sError):
            raise item
        else:
            yield item


def _forward(reader: Follower, task: Task, lines: queue.SimpleQueue[LogLine | Tfk8sError | None]) -> None:
    try:
        for text in reader:
            lines.put(LogLine(task=task, text=text))
        lines.put(None)
    except Tfk8sError as error:
        lines.put(error)


class Follower:
    """The lines of one pod, each once, although streams break and containers restart.

    The API server puts a time before each line. A new stream begins at the last time; lines with that time are counted.

    Args:
        pod: the pod's name, or a function that returns it.
        options: the first lines, and whether each line begins with its time.
        exists: returns whether the pod may still write.
    """

    def __init__(
        self, client: Client, namespace: str, pod: str | Callable[[], str], options: LogOptions,
        exists: Callable[[], bool],
        container: str = naming.SERVER_CONTAINER,
    ) -> None:  # fmt: skip
        self._client, self._namespace, self._pod, self._container = client, namespace, pod, container
        self._options, self._exists = options, exists
        self._last, self._count = "", 0

    def __iter__(self) -> Iterator[str]:
        outage = polling.Retries(_OUTAGE_TIMEOUT)
        for _ in polling.poll(None):
            try:
                yield from self._stream()
                if not self._exists():
                    yield from self._stream(follow=False)
                    return
                outage = polling.Retries(_OUTAGE_TIMEOUT)
            except BackendUnreachable:
                if not outage.wait():
                    raise

    def _stream(self, *, follow: bool = True) -> Iterator[str]:
        query = _query(self._options) if not self._last else {"sinceTime": self._last[:19] + "Z"}
        with errors.suppress(*_NO_CONTAINER):
            query = {**query, "follow": follow, "timestamps": True}
            name = self._pod if isinstance(self._pod, str) else self._pod()
            path = paths.container(self._namespace, name, self._container, "log")
            with self._client.lines(path, query) as lines:
                yield from self._new(lines)

    def _new(self, lines: Iterator[str]) -> Iterator[str]:
        """Yield the lines that were not read before."""
        last, repeated = self._last, self._count
        for line in lines:
            time, _, text = line.partition(" ")
            if time < last or not time[:1].isdigit():  # kubelet reports a lost log in a line without a time
                continue
            if time == last and repeated:
                repeated -= 1
                continue
            self._count = self._count + 1 if time == self._last else 1
            self._last = time
            yield line if self._options.timestamps else text


def _query(options: LogOptions) -> dict[str, str | int | bool]:
    query: dict[str, str | int | bool] = {} if options.tail is None else {"tailLines": options.tail}
    return query if options.since is None else {**query, "sinceSeconds": max(1, math.ceil(options.since))}
