"""The way of commands' facts into the shared history: notes for the pod that writes the record of a cluster.

`core.history.shared` has the notes, and `task.lifetime.record` what the pod makes of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client, Query
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods import containers
from tfk8s.backends.kubernetes.workloads import lifetime
from tfk8s.core.history.facts import REMOVED, Fact, is_time
from tfk8s.core.history.shared import missing_note, surplus_notes, to_notes
from tfk8s.core.lifetime import RECORD_TIMEOUT
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput, Tfk8sError, WaitTimeout
from tfk8s.log import log
from tfk8s.polling import wait_until
from tfk8s.render import manifests
from tfk8s.render.lifetime import COMPONENT
from tfk8s.render.pods import Object
from tfk8s.render.script_job import JOB_NAME

_BEGIN_TIMEOUT = 10.0


class RecordNotes:
    """Leaves the facts of this process' commands for the records of clusters.

    Args:
        namespace_of: returns the namespace of a cluster.
    """

    def __init__(self, client: Client, namespace_of: Callable[[str], str]) -> None:
        self._client, self._namespace_of = client, namespace_of
        self._begin = time.time()
        self._recorded: dict[str, bool] = {}
        self._left: set[str] = set()  # of the notes

    def see(self, name: str, jobs: Iterable[Object]) -> None:
        """Note by a cluster's Jobs whether the cluster has a record."""
        self._recorded[name] = is_recorded(jobs)

    def applied(self, job_file: JobFile) -> None:
        """Note by the job file that was applied whether the cluster has a record."""
        self._recorded[job_file.name] = job_file.history is not None

    def has_record(self, name: str) -> bool:
        """Return whether a cluster has a record, as far as this process has seen the cluster."""
        return self._recorded.get(name, False)

    def leave(self, name: str, facts: Iterable[Fact]) -> bool:
        """Leave those facts that have come since this process began; return whether they are all left.

        A user may lack the right to do so.
        """
        notes = to_notes(fact for fact in facts if is_time(fact.get("time")) and fact["time"] >= self._begin)
        for key in surplus_notes(notes):
            del notes[key]
        fresh = {key: note for key, note in notes.items() if key not in self._left}
        if not fresh:
            return True
        try:
            self._make_room(name, self._annotate(name, fresh))
        except Tfk8sError as error:
            log.debug("the shared history lacks a command: %s", error)
            return False
        self._left |= fresh.keys()
        return True

    def _make_room(self, name: str, annotations: Mapping[str, str]) -> None:
        """Remove the oldest notes, if there are many; count those that no pod has written, as far as can be known."""
        if surplus := surplus_notes(annotations):
            query = paths.labelled({**manifests.selector(name), manifests.COMPONENT: COMPONENT})
            pods = self._running(self._namespace_of(name), query)
            is_written = any("TFK8S_HISTORY" in str(pod["spec"]) for pod in pods)
            note = {} if is_written else missing_note(annotations, surplus)
            self._annotate(name, {**dict.fromkeys(surplus), **note})

    def end(self, name: str, jobs: Sequence[Object]) -> None:
        """End the record of a cluster that is going to be removed, and wait until the record is written.

        Args:
            jobs: the cluster's. That of the record is deleted, and its pod writes what it knows. The limits are kept.
        """
        if not self.leave(name, [{"kind": "end", "time": time.time(), "reason": REMOVED, "lost": False}]):
            return  # the pod sees the end of the other objects
        namespace, own = self._namespace_of(name), [job for job in jobs if lifetime.is_record(job)]
        query = paths.labelled({JOB_NAME: own[0]["metadata"]["name"]})
        try:
            with contextlib.suppress(WaitTimeout):  # a signal would end a pod that has just started without a word
                begun = lambda: all(map(self._has_begun, self._running(namespace, query)))  # noqa: E731
                wait_until(begun, "the pod to begin", _BEGIN_TIMEOUT)
            for job in own:
                self._client.send("DELETE", paths.path(job, namespace), {"propagationPolicy": "Background"})
            gone = lambda: not self._running(namespace, query)  # noqa: E731
            wait_until(gone, "the shared history to be written", RECORD_TIMEOUT, announce=True)
        except (Tfk8sError, KeyboardInterrupt) as error:  # Ctrl-C ends the wait, and not the removal
            log.warning("%s", f'the shared history may lack the end of cluster "{name}": {str(error) or "interrupted"}')

    def _running(self, namespace: str, query: Query) -> list[Object]:
        pods = self._client.get(paths.collection("Pod", namespace), query)["items"]
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]

    def _has_begun(self, pod: Object) -> bool:
        """Return whether the program in a pod has said its first line, after which it heeds signals."""
        try:
            return bool(self._client.text(containers.log_path(pod), {"limitBytes": 100}))
        except ApiError as error:
            return error.code == 403  # nobody can tell

    def _annotate(self, name: str, notes: Mapping[str, str | None]) -> Mapping[str, str]:
        return lifetime.annotate(self._client, self._namespace_of(name), name, notes, "history")


def is_recorded(jobs: Iterable[Object]) -> bool:
    """Return whether one of a cluster's Jobs writes the record of the cluster."""
    return any(map(lifetime.is_record, jobs))


def require_claim(client: Client, namespace: str, job_file: JobFile) -> None:
    """Raise an InvalidInput if the claim of the shared history does not exist: nothing would write the record."""
    if job_file.history is None or job_file.history.claim is None:
        return
    with contextlib.suppress(ApiError):  # not everybody may read claims
        if client.find(paths.named("PersistentVolumeClaim", job_file.history.claim, namespace)) is None:
            raise InvalidInput(
                f'namespace "{namespace}" has no claim "{job_file.history.claim}" for the history',
                help="docs/history.md has a manifest of such a claim; or leave history out",
            )
