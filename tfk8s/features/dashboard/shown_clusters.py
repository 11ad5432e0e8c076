"""Looks at all clusters, at one of them, and at the log of a task or a script, for the page.

Statuses come by the watches of an observer. A measurement is one request for a task and `PAUSE` seconds. Nothing here
writes to a cluster.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from tfk8s import api
from tfk8s.backends.parts import Shared
from tfk8s.backends.protocol import Backend
from tfk8s.cli import json_output
from tfk8s.core.script import LogOptions
from tfk8s.core.status import ClusterStatus
from tfk8s.core.task_names import choose, select
from tfk8s.errors import InvalidInput, NoSuchCluster, Tfk8sError
from tfk8s.features.dashboard.topics import MAX_TOPICS, Produce, Topic
from tfk8s.log import log
from tfk8s.render import script_job

OVERVIEW, CLUSTER, LOG = "overview", "cluster", "log"
PAUSE = 10.0  # seconds between two measurements, and two lists of clusters of this machine
_STATUS_PAUSE = 1.0
_SLOW_PAUSE = 30.0  # of what changes seldom, or costs several requests
_HISTORY = 50  # entries
_TAIL = 500  # lines of a log that come first
_LINE = 10_000  # characters of a line
_AMOUNTS = ("cpu", "memory", "received", "sent", "gpu", "gpu_memory")


class ShownClusters:
    """Finds the producers of topics: "overview", "cluster SOURCE NAME", "log SOURCE NAME TASK-OR-SCRIPT".

    Args:
        sources: the back ends by their names, "local" or "kubernetes/NAMESPACE".
        only: show this cluster alone; None is all.
        of_namespace: returns the back end of a namespace, if another source lists the clusters of all namespaces.
    """

    def __init__(
        self, sources: Mapping[str, Backend], only: str | None = None,
        of_namespace: Callable[[str], Backend] | None = None,
    ) -> None:  # fmt: skip
        self._sources, self._only = sources, only
        self._lock, self._problems = threading.Lock(), dict[str, str]()
        self._of_namespace = functools.lru_cache(MAX_TOPICS)(of_namespace) if of_namespace else None

    def find(self, name: str) -> Produce:
        """Return what produces the messages of a topic.

        Raises:
            InvalidInput: there is no such topic.
        """
        kind, *words = name.split(" ")
        if kind == OVERVIEW and not words:
            return self._overview
        backend = self._backend(words[0]) if (kind, len(words)) in ((CLUSTER, 2), (LOG, 3)) else None
        if backend is None:
            raise InvalidInput("the dashboard has no such topic")
        cluster, *rest = words[1:]
        if self._only not in (None, cluster):
            raise InvalidInput(f'the dashboard shows "{self._only}" alone')
        return _Log(backend, cluster, *rest) if kind == LOG else _ShownCluster(backend, cluster)

    def _backend(self, source: str) -> Backend | None:
        """Return the back end of a cluster's source; None if there is none."""
        kind, _, namespace = source.partition("/")
        if self._of_namespace is not None and self._lists_all(kind):
            return self._of_namespace(namespace) if namespace else None
        return self._sources.get(source)

    def _lists_all(self, source: str) -> bool:
        """Return whether a source lists the clusters of all namespaces."""
        return self._of_namespace is not None and source in self._sources and self._sources[source].shared is not None

    def _overview(self, topic: Topic) -> None:
        """Send the clusters of each source by themselves: a source that does not answer delays no other."""
        for source, backend in self._sources.items():
            pause = _SLOW_PAUSE if backend.shared else PAUSE
            _beside(topic, pause, functools.partial(self._send_clusters, source=source, backend=backend))
        _again(topic, _SLOW_PAUSE, self._send_history)

    def _send_clusters(self, topic: Topic, source: str, backend: Backend) -> None:
        """Send the clusters of a source, and from the first one that answers the free GPUs of the nodes."""
        found, problem, note = list[json_output.Document](), "", ""
        try:
            found = [_summary(self._source_of(source, status), status) for status in self._clusters(backend)]
            note = _limit(backend.shared) if backend.shared and self._lists_all(source) else ""
        except Tfk8sError as error:
            problem = str(error)
        gpus = backend.shared.free_gpus() if backend.shared and self._is_first(source, problem) else ""
        topic.send(f"clusters {source}", {"clusters": found, "problem": problem, "note": note, "gpus": gpus})

    def _is_first(self, source: str, problem: str) -> bool:
        """Return whether a source of Kubernetes has answered, and before the others that answer."""
        with self._lock:
            self._problems[source] = problem
            return next((name for name, text in self._problems.items() if not text), "") == source

    def _source_of(self, source: str, status: ClusterStatus) -> str:
        """Return the source by which a page asks for a cluster that another source lists."""
        return f"{source}/{status.namespace}" if self._lists_all(source) else source

    def _clusters(self, backend: Backend) -> list[ClusterStatus]:
        if self._only is None:
            return backend.clusters()
        with contextlib.suppress(NoSuchCluster):
            return [backend.observe(self._only)]
        return []

    def _send_history(self, topic: Topic) -> None:
        """Send the entries of the history."""
        show = api.feature("history").show()
        rows = api.history(self._only, _HISTORY)
        topic.send("history", [{**show.document(row), "timeline": _has_timeline(row.id)} for row in rows])


def _limit(shared: Shared) -> str:
    """Return what limits a list of all namespaces, for people; "" if nothing does."""
    only = shared.only_namespace()
    return only and f'you may not list the clusters of all namespaces: these are of namespace "{only}" alone'


def _has_timeline(entry: str) -> bool:
    with contextlib.suppress(Tfk8sError):  # it is damaged, or another command removes it
        return bool(api.past(entry).files.timeline.exists())
    return False


def _summary(source: str, status: ClusterStatus) -> json_output.Document:
    """Return a cluster's row in the list."""
    return {
        "source": source, "name": status.name, "location": status.location, "phase": status.phase,
        "tasks": len(status.tasks), "ready": status.ready, "reason": status.reason or status.common_reason,
    }  # fmt: skip


class _ShownCluster:
    """Sends the status of a cluster, and beside it what its tasks use and its events."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend, self._name = backend, name
        self._status: ClusterStatus | None = None
        self._steps: dict[str, json_output.Document] = {}
        self._events: set[tuple[str, int]] = set()

    def __call__(self, topic: Topic) -> None:
        _beside(topic, PAUSE, self._send_usage)
        _beside(topic, _SLOW_PAUSE, self._send_events)
        _again(topic, PAUSE, self._send_statuses)

    def _send_statuses(self, topic: Topic) -> None:
        """Send each status that differs from the last, and the progress that it tells."""
        self._status = None
        with self._backend.observer(self._name) as observer:
            while topic.is_wanted():
                status = observer.status()
                if status != self._status:
                    self._send_progress(topic, status)
                    topic.send("cluster", json_output.cluster(status))
                    self._status = status
                topic.wait(_STATUS_PAUSE)

    def _send_progress(self, topic: Topic, status: ClusterStatus) -> None:
        reported = {
            **{str(task.task): json_output.progress(task.progress) for task in status.tasks if task.progress},
            **{script.name: json_output.progress(script.progress) for script in status.scripts if script.progress},
        }  # fmt: skip
        if new := {name: one for name, one in reported.items() if one and one != self._steps.get(name)}:
            topic.send("progress", {"time": time.time(), "tasks": new})
            self._steps.update(new)

    def _send_usage(self, topic: Topic) -> None:
        while (status := self._status) is None:  # the first look comes soon
            if not topic.wait(_STATUS_PAUSE / 4):
                return
        if status.suspended:
            return
        found = self._backend.inside.usage(self._name, choose(status, ()))
        used = {usage.name: [getattr(usage, amount) for amount in _AMOUNTS] for usage in found}
        topic.send("usage", {"time": time.time(), "tasks": used})

    def _send_events(self, topic: Topic) -> None:
        for event in self._backend.events(self._name, follow=False):
            if (event.id, event.count) not in self._events:
                self._events.add((event.id, event.count))
                topic.send("event", json_output.event(event))


class _Log:
    """Sends the lines of the log of a task, or of a script that runs without a terminal."""

    def __init__(self, backend: Backend, cluster: str, name: str) -> None:
        self._backend, self._cluster, self._name = backend, cluster, name

    def __call__(self, topic: Topic) -> None:
        try:
            for text in self._lines(LogOptions(follow=True, tail=_TAIL)):
                topic.send("line", text[:_LINE])
                if not topic.is_wanted():
                    return
            topic.send("end", f"{self._name} writes no more")
        except Tfk8sError as error:
            topic.send("end", str(error))

    def _lines(self, options: LogOptions) -> Iterator[str]:
        if script_job.is_name(self._name):
            return self._backend.detached.log(self._cluster, self._name, options)
        tasks = select([self._name], [status.task for status in self._backend.observe(self._cluster).tasks])
        return (line.text for line in self._backend.logs(self._cluster, tasks, options))


def _beside(topic: Topic, pause: float, look: Produce) -> None:
    """Look again and again, as `_again`, on a thread of its own."""
    work = functools.partial(_again, topic, pause, look)
    threading.Thread(target=work, name=f"tfk8s-{topic.name}-beside", daemon=True).start()


def _again(topic: Topic, pause: float, look: Produce) -> None:
    """Look, and look again after each pause, while the topic is wanted. Errors are messages."""
    while True:
        try:
            look(topic)
        except NoSuchCluster as error:
            topic.send("gone", str(error))
        except Tfk8sError as error:
            topic.send("problem", str(error))
        except Exception as error:  # an error of tfk8s itself must not end the curves without a word
            log.warning("the dashboard: %s: %s", topic.name, error, exc_info=True)
            topic.send("problem", f"this is a bug in tfk8s: {type(error).__name__}: {error}")
        if not topic.wait(pause):
            return
