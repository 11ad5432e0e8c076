"""The history of clusters on Kubernetes: commands write it, into the user's state folder."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from tfk8s.backends.history import files, index, writing
from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.kubernetes.pods.total_requests import billed_jobs
from tfk8s.backends.kubernetes.workloads.record_notes import RecordNotes
from tfk8s.concurrency import map_parallel
from tfk8s.core.history import redaction
from tfk8s.core.history.facts import REMOVED
from tfk8s.core.price.rates import Rates
from tfk8s.core.progress import latest
from tfk8s.core.resources import named
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import JobFile
from tfk8s.core.status import ClusterStatus, TaskStatus
from tfk8s.errors import NoSuchCluster, Tfk8sError
from tfk8s.render import script_job

if TYPE_CHECKING:
    from tfk8s.backends.protocol import Backend

_AT_ONCE = 16
_MAX_LINES = 200_000  # of the logs of all tasks
_MAX_SECONDS = 20.0  # for the beginning of each log: a `down` is to end
_UNSEEN = "lost: it was removed, and no command of this user saw how"

T = TypeVar("T")


class PodHistory:
    """The part of the backend that finds entries, and completes them.

    Args:
        backend: reads clusters.
        location: returns where a cluster of this name is, as its status has it.
        rates: returns those for a cluster of this name.
        notes: brings facts into the shared history.
        clock: returns a time in seconds.
    """

    def __init__(
        self, backend: Backend, location: Callable[[str], str], rates: Callable[[str], Rates | None],
        notes: RecordNotes, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._notes = notes
        self._backend, self._location, self._rates, self._clock = backend, location, rates, clock

    def find(self, name: str) -> EntryFiles | None:
        """Return the newest entry of a cluster at its place that has not ended; None without one."""
        return writing.find_open(name, self._location(name))

    def join(self, name: str, job_file: JobFile | None = None, *, is_new: bool = False) -> EntryFiles | None:
        """Return the entry of a cluster that exists, which may begin now; that of a new cluster is another one."""
        if is_new:
            writing.lose(name, self._location(name), _UNSEEN)
        entry = self.find(name)
        rates = self._rates(name) if job_file else None
        price = rates.price(billed_jobs(job_file)) if job_file and rates else None
        if entry and job_file:  # which may resume the cluster, or change what it requests
            entry.add("requests", requests=writing.amounts(named(job_file), price))
        return entry or writing.begin(name, self._location(name), job_file, price=price)

    def seen(self, name: str) -> None:
        """Add the tasks as they are now."""
        with files.unless_unwritable(), contextlib.suppress(NoSuchCluster):
            if entry := self.find(name):
                writing.add_status(entry, self._backend.observe(name), self._rates(name))

    def share(self, name: str) -> None:
        """Bring what this process has added to the shared history, if the cluster has a record there."""
        if self._notes.has_record(name) and (entry := self.find(name)):
            self._notes.leave(name, entry.facts())

    @contextlib.contextmanager
    def removing(self, name: str) -> Iterator[None]:
        """In a `with` that removes a cluster, keep what would be gone: before, its logs and events; then, its end."""
        entry, deadline = None, self._clock() + _MAX_SECONDS
        with files.unless_unwritable(), contextlib.suppress(NoSuchCluster):
            status = self._backend.observe(name)
            entry = self.join(name)
            assert entry is not None
            self._keep(entry, status, deadline)
            self.share(name)
        yield
        if entry is not None:
            with files.unless_unwritable():
                writing.end(entry, REMOVED)
                index.prune_daily()

    def _keep(self, entry: EntryFiles, status: ClusterStatus, deadline: float) -> None:
        writing.add_status(entry, status, self._rates(status.name))
        events = self._backend.events(status.name, follow=False)
        entry.write_events(map(dataclasses.asdict, self._until(deadline, events)))
        most = max(100, min(files.LOG_LINES, _MAX_LINES // max(1, len(status.tasks))))

        def keep(task: TaskStatus) -> None:
            if self._clock() < deadline:
                with contextlib.suppress(Tfk8sError):  # such as of a pod that never started
                    name = f"{task.task.job}-{task.task.index}"
                    entry.write_log(name, self._until(deadline, self._lines(status.name, task, most)))

        map_parallel(keep, status.tasks, _AT_ONCE)
        for script in filter(lambda script: script_job.is_name(script.name), reversed(status.scripts)):
            with contextlib.suppress(Tfk8sError):
                if self._clock() < deadline:
                    lines = self._until(deadline, self._backend.detached.log(status.name, script.name))
                    entry.write_log(script.name, (f" 0 {line}" for line in lines))
            kept = [text for _, _, text in entry.log(script.name)] if script.name in entry.logs() else []
            entry.add(
                "script", name=script.name, command=redaction.text(script.command), exit_code=script.exit_code,
                reason=redaction.text(script.reason), progress=str(script.progress or latest(kept) or ""),
            )  # fmt: skip

    def _until(self, deadline: float, items: Iterable[T]) -> Iterator[T]:
        """Yield the items that come before a time of the clock."""
        return itertools.takewhile(lambda _: self._clock() < deadline, items)

    def _lines(self, name: str, task: TaskStatus, most: int) -> Iterator[str]:
        """Yield the lines of a task's log, and before those of its last restart."""
        runs = [(1, LogOptions(tail=most, timestamps=True))]
        if task.restarts:
            runs.insert(0, (0, LogOptions(tail=most, timestamps=True, previous=True)))
        for run, options in runs:
            for line in self._backend.logs(name, [task.task], options):
                moment, _, text = line.text.partition(" ")
                yield f"{moment} {run} {text}"
