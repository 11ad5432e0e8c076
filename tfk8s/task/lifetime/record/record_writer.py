"""The thread that writes a cluster's record in a shared history. Standard library only: this file runs in pods."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfk8s.core.history import facts
from tfk8s.core.history.facts import LOST_RIGHTS, REMOVED_BY_OTHERS, Fact
from tfk8s.core.history.shared import of_notes, record_name
from tfk8s.core.lifetime import RemovableObject
from tfk8s.task.lifetime.object_server import FAILURES, Forbidden, ObjectServer, TokenRefused
from tfk8s.task.lifetime.record import observed
from tfk8s.task.lifetime.record.observed import ObservedPod
from tfk8s.task.lifetime.record.record_files import RecordFiles
from tfk8s.task.lifetime.record.record_logs import RecordLogs

if TYPE_CHECKING:  # a claim needs none of it
    from tfk8s.task.lifetime.record.record_mirror import RecordMirror

INTERVAL = 10.0  # seconds between two looks
_TASKS_INTERVAL = 30.0  # of ten thousand tasks, the fact has 1.5 MB
_TASKS_SHARE = 50  # of a cluster's age: a change of progress each second must not fill the record in a day
_END_NOTE = 600.0
GONE_TIMEOUT = 8.0  # for the ConfigMap to go, after the signal of a removal that nobody has told
_EVENTS_INTERVAL = 60.0  # the events of a namespace may be many
LAST_LOOK = 20.0  # seconds for the last look: kubelet waits for 30 s before it kills the pod
_MAX_FAILURE = 60.0  # seconds until a pod ends that could write before: a volume may be moved
_INSTANCE, _MANAGED_BY = "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"
_HELM = "Helm"


class RecordWriter:
    """Writes the record of a cluster.

    Args:
        server: the API server.
        objects: the cluster's.
        volume: the folder of the volume.
        with_logs: whether logs are kept.
        say: prints a line.
        clock: returns a time in seconds since the epoch.
        mirror: copies the record to a bucket; None if the volume is the history.
    """

    def __init__(
        self, server: ObjectServer, objects: Sequence[RemovableObject], volume: Path, with_logs: bool,
        say: Callable[[str], object], clock: Callable[[], float] = time.time, mirror: RecordMirror | None = None,
    ) -> None:  # fmt: skip
        self._server, self._objects, self._volume = server, objects, volume
        self._stopped, self._is_last = threading.Event(), False
        self._logs = RecordLogs(server, self._stopped, with_logs=with_logs)
        self._say, self._clock, self._mirror = say, clock, mirror
        self._config_map = next(item for item in objects if item.resource == "configmaps")
        self._account = next(item for item in objects if item.resource == "serviceaccounts")
        self._files: RecordFiles | None = None
        self._known: set[int] = set()  # facts of commands
        self._created = 0.0
        self._pods: dict[str, ObservedPod] = {}  # by the names of their logs, also those that are gone
        self._ended_scripts: set[str] = set()
        self._told: Any = None
        self._requests: Mapping[str, float] | None = None  # told last; None if commands tell them
        self._events: dict[str, int] = {}
        self._next_events = self._next_tasks = 0.0
        self._ended, self._problem, self._failed_since, self._has_looked = False, "", 0.0, False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfk8s-record", daemon=True)

    def start(self) -> None:
        """Begin to write, in a thread."""
        self._thread.start()

    def wait(self) -> str:
        """Wait until the record can't be written for good, and return why; "" if there is no cluster."""
        self._over.wait()
        return self._problem

    def end(self) -> None:
        """Write what is known last, and perhaps the end of the cluster; return after at most 20 seconds."""
        self._stopped.set()
        last = threading.Thread(target=self._end, name="tfk8s-last-record", daemon=True)
        last.start()
        last.join(LAST_LOOK)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.step()
            if self._is_over():
                self._over.set()
                break
            self._stopped.wait(INTERVAL)

    def step(self) -> None:
        """Write what is new, to the volume and to a bucket; say when failures begin and end."""
        self._try(self._look_and_send)

    def _look_and_send(self) -> None:
        try:
            self.look()
        finally:
            if self._mirror:
                self._mirror.send(self._stopped)

    def _is_over(self) -> bool:
        """Return whether there is no cluster, or the volume can't be written."""
        if not self._failed_since:
            return self._has_looked and self._files is None and not self._problem
        return self._clock() - self._failed_since >= (_MAX_FAILURE if self._has_looked else 0.0)

    def _end(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()
        self._next_events = 0.0
        self._try(self._look_last)
        self._send_last()

    def _look_last(self) -> None:
        try:
            self.look()
        finally:
            if not self._ended:
                self._end_if_gone()

    def _send_last(self) -> None:
        """Send what the bucket lacks. A failure is followed by another attempt, in the time that `end` has."""
        begin, mirror = time.monotonic(), self._mirror
        while mirror and not self._try(lambda: mirror.send(None)) and time.monotonic() - begin < LAST_LOOK:
            threading.Event().wait(1)

    def _try(self, write: Callable[[], None]) -> bool:
        """Write, and say when failures begin and end. No failure ends the thread: a bug's has a name, too.

        Returns:
            Whether it is written.
        """
        problem, failed_since = "", 0.0
        try:
            write()
            self._has_looked = True
        except FAILURES as error:
            problem = str(error)
        except FileNotFoundError:  # somebody has removed the record's folder, which the next look makes again
            problem, self._files = "its folder is gone", None
        except Exception as error:
            said = error.strerror or str(error) if isinstance(error, OSError) else ""
            problem = said or f"{type(error).__name__}: {error}"
            is_bucket = self._mirror and self._has_looked  # which may be back
            failed_since = 0.0 if is_bucket else self._failed_since or self._clock()
        if problem != self._problem:
            self._say(f"error: the history is not written: {problem}" if problem else "the history is written again")
        self._problem, self._failed_since = problem, failed_since
        return not problem

    def look(self) -> None:
        """Write what is new.

        Raises:
            OSError: the volume can't be written.
            ApiFailure, ValueError: the API server refuses, or does not answer.
        """
        self._is_last = self._stopped.is_set()  # else the signal may come in this look, and another one follows
        if (files := self._files or self._open()) is None or self._ended:
            return
        end = self._take_notes(files)
        try:
            self._look_at_pods(files)
            if self._clock() >= self._next_events:
                self._take_events(files)
                self._next_events = self._clock() + _EVENTS_INTERVAL
        finally:
            if end and self._is_last:  # till then, the tasks may write; no other look follows a failure of this one
                self._add_end(facts.text(end, "reason"))

    def _open(self) -> RecordFiles | None:
        """Begin the record, or go on with that of an earlier pod; None if the cluster is gone."""
        if (body := self._server.get(self._config_map).body) is None:
            return None
        metadata = body["metadata"]
        files = RecordFiles(self._volume, self._config_map.name, metadata["uid"])
        files.make()
        self._created = observed.seconds(metadata["creationTimestamp"])
        if self._mirror:
            self._mirror.restore(record_name(self._config_map.name, metadata["uid"]), self._created)
        known, self._events = list(files.facts()), files.event_counts()
        if any(fact.get("kind") == "end" for fact in known) and "deletionTimestamp" not in metadata:
            files.reopen()  # a `down` was killed after it had told the end, or a guess was wrong
        self._known = set(map(_identity, known))
        self._ended_scripts = {facts.text(fact, "command") for fact in known if fact.get("kind") == "script"}
        told = [fact for fact in known if fact.get("requests")]
        is_helms = (metadata.get("labels") or {}).get(_MANAGED_BY) == _HELM  # whose `install` leaves no notes
        if is_helms and all(fact.get("seen") for fact in told):
            self._requests = told[-1]["requests"] if told else {}
        if not self._known:
            files.add(
                {
                    "kind": "start", "time": self._created, "who": _HELM.lower() if is_helms else "",
                    "location": f"namespace {metadata['namespace']}", "job_file": {}, "digest": "", "image": "",
                    "requests": {},
                }
            )  # fmt: skip
            (self._mirror or files).prune()
        self._files = files
        return files

    def _take_notes(self, files: RecordFiles) -> Fact | None:
        """Write the facts that commands have left; return the end of the cluster if a command tells it."""
        body = self._server.get(self._account).body or {}
        end = None
        for fact in of_notes(body.get("metadata", {}).get("annotations") or {}):
            if fact["kind"] == "end":  # an old one is of a `down` that did not do its work
                end = fact if self._clock() - fact["time"] < _END_NOTE else None
            elif (identity := _identity(fact)) not in self._known:
                files.add(fact)
                self._known.add(identity)
                self._requests = None if fact.get("requests") else self._requests
        return end

    def _look_at_pods(self, files: RecordFiles) -> None:
        found = self._server.items("pods", f"{_INSTANCE}={self._config_map.name}")
        pods = observed.newest(filter(None, map(observed.observe, found)))
        ended = sorted(name for name, pod in pods.items() if pod.exit_code is not None and not pod.task)
        self._logs.read(files, pods, is_last=self._is_last)
        for script in (pods[name] for name in ended if name not in self._ended_scripts):
            files.add(
                {"kind": "script", "time": self._clock(), "command": script.log, "exit_code": script.exit_code,
                 "reason": script.reason, "progress": self._logs.progress.get(script.log, "")}
            )  # fmt: skip
            self._ended_scripts.add(script.log)
        self._pods |= pods
        self._tell_requests(files, pods.values())
        self._tell_tasks(files)

    def _tell_requests(self, files: RecordFiles, pods: Iterable[ObservedPod]) -> None:
        """Write what the tasks of a cluster of Helm request, if that has changed; commands would tell prices, too.

        After the signal, which may come in this look, pods are missing because Helm removes them.
        """
        seen = observed.requests(pods)
        if self._requests is not None and seen != self._requests and not self._stopped.is_set():
            files.add({"kind": "requests", "time": self._clock(), "requests": seen, "seen": True})
            self._requests = seen

    def _tell_tasks(self, files: RecordFiles) -> None:
        """Write the tasks as they are, if they have changed. Tasks without a pod stay as they were."""
        tasks = [pod for _, pod in sorted(self._pods.items(), key=_in_order) if pod.task]
        jobs = [item for item in self._objects if item.resource == "jobs"]
        code = observed.result(filter(None, (self._server.get(job).body for job in jobs)), tasks)
        failed = next((pod for pod in tasks if pod.exit_code), None) if code else None
        told = {
            "tasks": [pod.plain() | {"progress": self._logs.progress.get(pod.log, "")} for pod in tasks],
            "progress": next((said for pod in tasks if (said := self._logs.progress.get(pod.log))), ""),
            "exit_code": code, "reason": f"{failed.task} {failed.reason}".rstrip() if failed else "",
        }  # fmt: skip
        is_due = self._is_last or self._clock() >= self._next_tasks
        if tasks and told != self._told and is_due:
            files.add({"kind": "tasks", "time": self._clock(), **told}, is_last=self._is_last)
            self._told = told
            self._next_tasks = self._clock() + max(_TASKS_INTERVAL, (self._clock() - self._created) / _TASKS_SHARE)

    def _take_events(self, files: RecordFiles) -> None:
        tasks = {pod.name: pod.task or pod.log for pod in self._pods.values()}
        names = {item.name for item in self._objects}
        found = filter(None, (observed.event(item, tasks, names) for item in self._server.items("events")))
        fresh = [event for event in found if self._events.get(event["id"]) != event["count"]]
        files.add_events(sorted(fresh, key=lambda event: float(event["time"])))
        self._events |= {event["id"]: event["count"] for event in fresh}

    def _end_if_gone(self) -> None:
        """Write the end if somebody else removes the cluster. Without the rights to see that, the end is a guess."""
        begin = time.monotonic()
        while (is_gone := self._is_gone()) is False and time.monotonic() - begin < GONE_TIMEOUT:
            threading.Event().wait(1)
        if is_gone is not False:
            self._add_end(REMOVED_BY_OTHERS if is_gone else LOST_RIGHTS, is_lost=not is_gone)

    def _is_gone(self) -> bool | None:
        """Return whether the cluster is gone, or is being removed; None if this pod may not see that any more."""
        try:
            body = self._server.get(self._config_map).body
        except (TokenRefused, Forbidden):
            return None
        return body is None or "deletionTimestamp" in body["metadata"]

    def _add_end(self, reason: str, *, is_lost: bool = False) -> None:
        if self._files and not self._ended:
            self._files.add({"kind": "end", "time": self._clock(), "reason": reason, "lost": is_lost}, is_last=True)
            self._ended = True


def _identity(fact: Fact) -> int:
    return hash(json.dumps(fact, sort_keys=True))


def _in_order(pair: tuple[str, ObservedPod]) -> tuple[str, int]:
    job, _, index = pair[0].rpartition("-")
    return job, int(index) if index.isdecimal() else 0
