"""An entry of the history in place of a cluster: its status, its logs and its events."""

from __future__ import annotations

import importlib
import itertools
import re
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfk8s.backends.history import files, index, places, writing
from tfk8s.backends.history.files import EntryFiles
from tfk8s.core import naming, plan
from tfk8s.core.events import Event, of_phase
from tfk8s.core.history.entry import OPEN, Entry, PastTask, Row
from tfk8s.core.history.facts import cost, in_order
from tfk8s.core.plan import Field
from tfk8s.core.progress import duration
from tfk8s.core.script import LogLine, LogOptions, Logs, shown
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus
from tfk8s.core.task_names import select
from tfk8s.errors import InvalidInput, Tfk8sError, quoted
from tfk8s.log import log

if TYPE_CHECKING:  # a list needs none of it
    from tfk8s.backends.history.merging import Pulled
    from tfk8s.backends.parts import Shared

SHOWN = 30  # entries
_MOST_PROBLEMS = 5  # that are shown
_MOST_NAME = 253  # characters of the name of an object
_TASK = re.compile(r"(\w+)-(\d{1,4})", re.ASCII)  # a script has six hexadecimal digits


class Past:
    """An entry that a command names, `NAME@NUMBER`.

    Raises:
        InvalidInput: there is no such entry.
    """

    def __init__(self, name: str, number: int) -> None:
        self.files = files.find(name, number)
        if self.files.is_open() and places.location_of(self.files) == writing.HERE:
            complete_lost([self.files])

    def read(self) -> Entry:
        """Return the entry, with the tasks as the events tell them if nothing else does."""
        entry = self.files.read()
        entry.tasks = entry.tasks or _tasks(self.events())
        entry.timeline = str(self.files.timeline) if self.files.timeline.exists() else ""
        return entry

    def fields_to(self, after: Past) -> list[Field]:
        """Return how another entry differs: its job file, outcome, commit, command and totals."""
        return list(plan.fields(_compared(self.read()), _compared(after.read())))

    def events(self) -> list[Event]:
        """Return the events, oldest first. Damaged ones are left out."""
        found = []
        for plain in self.files.events():
            with suppress(LookupError, TypeError, ValueError):
                found.append(_event(plain))
        return sorted(found, key=lambda event: event.time)

    def logs(self, chosen: Sequence[str], **options: Any) -> Logs:
        """Return the output of tasks, as `Cluster.logs` does. A script's log is that of a task of its name.

        Raises:
            InvalidInput: the entry has no such log, or the options ask to follow one.
        """
        part = LogOptions(**options)
        if part.follow:
            raise InvalidInput("logs of the history can't be followed", help=f"tfk8s logs -f {self.files.name}")
        names = {_task(name): name for name in self.files.logs()}
        scripts = [task for task in names if not _TASK.fullmatch(names[task])]
        tasks = [task for task in names if task not in scripts]
        if not names:
            raise InvalidInput(f"the history has no logs of {self.files.id}")
        words = [word for word in chosen if Task(word, 0) not in scripts]
        named = [Task(word, 0) for word in chosen if word not in words]
        picked = named + (list(select(words, tasks)) if words or not named else [])
        return Logs(picked, part, lambda: shown(self._lines(picked, names, part), part))

    def _lines(self, tasks: Iterable[Task], names: dict[Task, str], part: LogOptions) -> Iterator[LogLine]:
        for task in tasks:
            yield from (LogLine(task=task, text=text) for text in _chosen(self.files.log(names[task]), part))


def _compared(entry: Entry) -> dict[str, Any]:
    """Return what `diff` compares of an entry, as plain data."""
    row = entry.row
    ran = [verb for verb in entry.verbs if verb.verb in ("run", "submit")]
    return {
        **entry.job_file, "exit_code": row.exit_code, "reason": row.reason, "commit": row.commit,
        "location": row.location, "progress": row.progress, "state": row.state,
        "command": shlex.join([ran[-1].verb, *ran[-1].words]) if ran else None,
        "lasted": None if row.ended is None else duration(row.ended - row.started),
        "restarts": sum(task.restarts for task in entry.tasks),
    }  # fmt: skip


def rows(name: str | None, last: int | None) -> list[Row]:
    """Return the newest rows, of one name or all, with open entries as their facts tell them now."""
    listed = index.rows(name, last)
    opened = [row for row in listed if row.state == OPEN]
    complete_lost([files.of_row(row) for row in opened if row.location == writing.HERE])
    return [_now(row) for row in listed]


def is_shared(claim: str | None, place: str | None, *, bucket: str | None, shared: bool) -> bool:
    """Return whether a shared history is asked for: that of a claim or bucket, or the one that the namespace names.

    Args:
        claim: the claim; None without one.
        place: a context, a namespace or an image, which only a namespace's history needs.
        bucket: the bucket's URL; None without one.
        shared: whether the namespace names the claim or bucket.

    Raises:
        InvalidInput: the arguments contradict each other.
    """
    if (claim is not None) + (bucket is not None) + shared > 1:
        raise InvalidInput(
            "--claim, --bucket and --shared exclude each other", help="--shared finds the claim or bucket by itself"
        )
    if claim is None and not shared and place:
        raise InvalidInput(
            "--context, --namespace and --image need --claim or --shared",
            help="without them, history lists what is in your own files",
        )
    if claim is not None and not _is_object_name(claim):
        raise InvalidInput(f"{quoted(claim)} is not the name of a PersistentVolumeClaim", help="kubectl get pvc")
    return claim is not None or bucket is not None or shared


def _is_object_name(text: str) -> bool:
    from tfk8s.jobfile.syntax import DNS_NAME  # a list needs none of it

    return len(text) <= _MOST_NAME and re.fullmatch(DNS_NAME, text) is not None


def pull(
    find_place: Callable[[], Shared | None], claim: str | None, *, bucket: str | None, name: str | None,
    last: int | None = None, image: str | None = None,
) -> Pulled:  # fmt: skip
    """Bring the newest records of a shared history into that of this user; warn of what can't be read.

    Args:
        find_place: returns the part of the backend; None if the backend has no shared history.
        claim: the PersistentVolumeClaim; None is what the namespace names.
        bucket: the bucket's URL, which needs no backend; None without one.
        name: only clusters of this name; None for all.
        last: at most so many; None is `SHOWN`.
        image: of the pod that reads the claim; None is that of a cluster that writes there.

    Raises:
        InvalidInput: there is no such claim, or the namespace names none.
        ClusterError: the claim or bucket can't be read.
        WaitTimeout: the pod that reads the claim does not start in time, or the bucket does not answer.
    """
    if name is not None and not naming.is_dns_label(name):
        raise InvalidInput(f"{quoted(name)} is not the name of a cluster")
    most = SHOWN if last is None else last
    if bucket is not None:
        from tfk8s.backends.history import bucket_reader

        pulled = bucket_reader.pull(bucket, None, cluster=name, last=most)
    elif place := find_place():
        pulled = place.pull_history(claim, cluster=name, last=most, image=image)
    else:
        raise InvalidInput("only clusters on Kubernetes share a history")
    for problem in pulled.problems[:_MOST_PROBLEMS]:
        log.warning("%s", problem)
    if len(pulled.problems) > _MOST_PROBLEMS:
        log.warning("and %d more records with problems", len(pulled.problems) - _MOST_PROBLEMS)
    if pulled.left_out:
        log.warning("%d records are left out for their size: the same command brings more of them", pulled.left_out)
    return pulled


def _now(row: Row) -> Row:
    if row.state != OPEN:
        return row
    try:
        return files.of_row(row).read().row
    except Tfk8sError:  # it is damaged, or another command removes it
        return row


def cost_so_far(cluster: ClusterStatus) -> tuple[float, str]:
    """Return what a cluster has cost so far, by its open entry, and the currency: "" without an entry or rates."""
    with files.unless_unwritable():
        if entry := writing.find_open(cluster.name, cluster.location):
            return cost(in_order(entry.facts()), time.time())
    return 0.0, ""


def complete_lost(entries: Sequence[EntryFiles]) -> None:
    """End those entries of clusters on this machine that nobody ended."""
    if entries and sys.platform == "linux":
        from tfk8s.backends.local.supervision import history

        history.complete_lost(entries)


def parse(name: str) -> Past:
    """Return the entry that "NAME@NUMBER" names.

    Raises:
        InvalidInput: there is no such entry.
    """
    cluster, _, number = name.rpartition("@")
    return Past(cluster, int(number))


def show() -> ModuleType:
    """Return the module that shows entries."""
    return importlib.import_module("tfk8s.features.history.show")


def _task(name: str) -> Task:
    match = _TASK.fullmatch(name)
    return Task(match[1], int(match[2])) if match and naming.is_job_name(match[1]) else Task(name, 0)


def _chosen(lines: Iterable[tuple[str, int, str]], part: LogOptions) -> Iterator[str]:
    """Yield the texts of the lines that options choose."""
    since = "" if part.since is None else datetime.fromtimestamp(time.time() - part.since, UTC).isoformat()[:19]
    kept = [line for line in lines if line[0] >= since]
    if part.previous:
        runs = sorted({run for _, run, _ in kept})
        kept = [line for line in kept if len(runs) > 1 and line[1] == runs[-2]]
    tail = kept if part.tail is None else deque(kept, maxlen=part.tail)
    return (f"{moment} {text}".lstrip() if part.timestamps else text for moment, _, text in tail)


def _event(plain: dict[str, Any]) -> Event:
    event = of_phase(plain) if "phase" in plain else Event(**plain)
    texts = (event.id, event.about, event.reason, event.message)
    if not all(isinstance(text, str) for text in texts) or not 0 <= event.time < 1e11 or type(event.count) is not int:
        raise ValueError("it is no event")
    return event


def _tasks(events: Iterable[Event]) -> list[PastTask]:
    """Return the tasks as their events on this machine tell them."""
    ordered = sorted((event for event in events if "/" in event.about), key=lambda event: event.about)
    tasks = []
    for name, group in itertools.groupby(ordered, lambda event: event.about):
        own = sorted(group, key=lambda event: event.time)
        starts = sum(event.reason == "Starting" for event in own)
        phase = "Failed" if own[-1].reason == "Ended" else own[-1].reason
        tasks.append(PastTask(task=name, phase=phase, restarts=max(0, starts - 1), reason=own[-1].message))
    return tasks
